"""What the documents tell a reader to type is typed here, against a server that runs."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.settings import load_settings
from tests import pictures
from tests.documents import drawn, encoded, pdf
from tests.model_folders import write_sentence_model
from tests.repo.markdown import SHELL, Snippet, blocks
from tests.system.conftest import MakeProduct
from tests.system.flow_api import FlowApi
from tests.system.product import COMMAND, Product
from tests.system.speech import recording
from tests.tiny_diffusers import write_tiny_sd15
from tests.tiny_gguf import write_tiny_llama
from tests.tiny_loras import safetensors
from tests.tiny_wan import write_tiny_wan, write_tiny_wan_i2v

NOT_HERE = {
    "git clone https://example.org/coderai.git && cd coderai": "the address stands for wherever the clone comes from",
    "make serve": "installs .venv anew; what it starts is the server of these tests",
    'make test PYTEST_ARGS="-k router -x"': "runs these tests",
    "docker build -t coderai .": "builds an image for minutes, from a registry",
    "docker run -p 127.0.0.1:8776:8776 -v coderai:/data coderai": "needs that image",
    "coderai models add Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M": "4.7 GB from the hub; see tests/infra/test_hub.py",
    "coderai models add sentence-transformers/all-MiniLM-L6-v2": "from the hub; see tests/api/cli/test_adding.py",
    "coderai models add stabilityai/stable-diffusion-xl-base-1.0:fp16": "7 GB from the hub; see the same",
    "coderai models add rhasspy/piper-voices:en_US-joe-medium": "from the hub; see the same",
    "pip install 'coderai[torch]'": "this environment has it, from the clone",
    "coderai models add https://example.org/model.gguf": "the address is an example; tests/infra/test_downloads.py",
    "coderai engines build llama": "compiles for ten minutes; tests/workers/engine/test_build.py",
}
"""Lines that cannot be run here, and why."""
IMPORTED = '{"text_models": [{"id": "imported", "service_url": "http://127.0.0.1:9/v1", "bin": "/bin/sh"}]}'

RUNNABLE = [block for block in blocks() if block.language in SHELL or block.language == "python"]


@pytest.fixture(scope="module")
def reader(make_product: MakeProduct) -> Iterator[Product]:
    """The install of a reader who works through every page."""
    served = make_product(settings={"FLOWS__SERVER": "child"})
    served.start()
    FlowApi(served).wait_until_up()
    yield served
    assert served.stop() == 0


def lines_of(block: Snippet) -> list[str]:
    """Its commands; one that goes on over several lines is one."""
    joined = block.text.replace("\\\n", " \x00")
    return [line.replace(" \x00", "\\\n").strip().removeprefix("$ ") for line in joined.splitlines() if line.strip()]


PAGES = sorted({block.page for block in RUNNABLE if set(lines_of(block)) - set(NOT_HERE)})


def adapted(text: str, page: str, folder: Path, served: Product) -> str:
    """The text with this server's port and key, and names that the page leaves to its reader."""
    tiny = folder / f"tiny-{Path(page).stem}.gguf"
    for written, meant in (
        ("http://127.0.0.1:8776", served.url),
        ("the-key-that-was-printed", served.key),
        ("/path/to/model.gguf", str(tiny)),
        ("/path/to/all-MiniLM-L6-v2", str(folder / "all-MiniLM-L6-v2")),
        ("/path/to/stable-diffusion", str(folder / "stable-diffusion")),
        ("/path/to/Wan2.1-T2V-1.3B", str(folder / "wan")),
        ("/path/to/Wan2.1-I2V-14B", str(folder / "wan-i2v")),
        ('"size": "832x480", "num_frames": 81', '"size": "32x32", "num_frames": 5'),  # there is no GPU here
        ("-F num_frames=49", "-F num_frames=5 -F size=32x32"),
        (" NAME", f" {tiny.stem}"),
    ):
        text = text.replace(written, meant)
    return text


def type_in(program: list[str], folder: Path, served: Product) -> subprocess.CompletedProcess[str]:
    environment = {
        **served.environment,
        "OPENAI_API_KEY": served.key,
        "PATH": f"{Path(COMMAND).parent}:{served.environment['PATH']}",
    }
    done = subprocess.run(
        program, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    if "models add" in program[-1]:
        time.sleep(1.5)  # a front sees what was added within a second; readers take longer to go on
    return done


@pytest.mark.timeout(300)  # some pages load models of torch, in two processes
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_when_it_is_followed(page: str, reader: Product, tmp_path: Path) -> None:
    """All its commands, in order, as a reader types them who comes from nowhere else."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    write_tiny_llama(tmp_path / f"tiny-{Path(page).stem}.gguf")
    write_sentence_model(tmp_path / "all-MiniLM-L6-v2")
    (tmp_path / "key.txt").write_text("sk-of-the-far-side\n")
    (tmp_path / "models.json").write_text(IMPORTED)
    (tmp_path / "page.png").write_bytes(encoded(drawn()))
    (tmp_path / "contract.pdf").write_bytes(pdf([drawn(), drawn()]))
    (tmp_path / "talk.mp3").write_bytes(recording(6.9))
    (tmp_path / "style.safetensors").write_bytes(safetensors())
    (tmp_path / "photo.png").write_bytes(pictures.encoded(pictures.gradient()))
    (tmp_path / "mask.png").write_bytes(pictures.encoded(pictures.left_half()))
    if "/path/to/stable-diffusion" in "".join(block.text for block in RUNNABLE if block.page == page):
        write_tiny_sd15(tmp_path / "stable-diffusion")
    if page.endswith("make-videos.md"):
        write_tiny_wan(tmp_path / "wan")
        write_tiny_wan_i2v(tmp_path / "wan-i2v")
    for block in (block for block in RUNNABLE if block.page == page):
        if block.language == "python":
            program = [sys.executable, "-c", adapted(block.text, page, tmp_path, reader)]
        else:
            lines = [line for line in lines_of(block) if line not in NOT_HERE]
            program = ["bash", "-euo", "pipefail", "-c", adapted("\n".join(lines), page, tmp_path, reader)]
        done = type_in(program, tmp_path, reader)
        assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"
        assert '"error":{' not in done.stdout.replace(" ", ""), f"{block.text}\n{done.stdout}"
        assert "sk-of-the-far-side" not in done.stdout + done.stderr


def test_every_exception_is_still_in_a_document() -> None:
    written = {line for block in RUNNABLE for line in lines_of(block)}
    assert set(NOT_HERE) <= written, set(NOT_HERE) - written


@pytest.mark.parametrize(
    "block", [block for block in blocks() if block.language == "toml"], ids=lambda block: block.text.split("\n")[0]
)
def test_a_settings_example_is_taken(block: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "coderai.toml"
    path.write_text(block.text)
    monkeypatch.setenv("CODERAI_CONFIG", str(path))
    load_settings()


def test_the_doctor_finds_a_running_install_well(reader: Product) -> None:
    done = reader.run("doctor")
    assert done.returncode == 0, done.stdout
    assert "problem" not in done.stdout
