"""Starts that cannot succeed say why in one line; a second start is quick."""

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import openai
import pytest

from tests.system.conftest import MakeProduct
from tests.system.product import CHAT, COMMAND, Product, eventually
from tests.tiny_gguf import write_tiny_llama

QUICK = {"MODELS__PACKAGED": "false"}


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Product]:
    """An install without models, not started."""
    served = Product(tmp_path / "home", settings=QUICK)
    yield served
    if served.process is not None:
        served.stop()


def refused(served: Product, *words: str) -> str:
    """`coderai serve` ends by itself, not with 0 and without a traceback, leaving no process; what it said."""
    done = served.run("serve", within_s=30)
    assert done.returncode not in (0, None)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    for word in words:
        assert word in said.replace("\n", " "), said
    assert len([line for line in said.splitlines() if line.strip()]) <= 6, said
    served.assert_nothing_left({})
    return said


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def test_a_port_in_use(install: Product) -> None:
    """Even where what has the port answers a health check as we do."""
    with HTTPServer(("127.0.0.1", install.port), _Healthy) as other:
        thread = Thread(target=other.serve_forever)
        thread.start()
        try:
            said = refused(install, f"port {install.port} on 127.0.0.1 is in use", "CODERAI_SERVER__PORT")
        finally:
            other.shutdown()
            thread.join()
    assert "serves on" not in said


def test_a_home_that_is_a_file(install: Product) -> None:
    install.home.write_text("")
    refused(install, str(install.home))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_may_not_be_written(install: Product) -> None:
    install.home.mkdir(mode=0o500)
    refused(install, str(install.home), "may not be written")


def test_a_home_on_a_read_only_disk(install: Product) -> None:
    with mounted(install.home, "ro,size=1m"):
        refused(install, str(install.home), "may not be written")


def test_a_file_that_is_no_toml(install: Product) -> None:
    install.home.mkdir()
    install.home.joinpath("coderai.toml").write_text("[server\nport = 1")
    refused(install, "coderai.toml is not TOML", "line 1")


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ("[serverr]\nport = 1", "serverr", "server"),
        ("[server]\nprot = 1", "server.prot", "port"),
        ("databse_url = ''", "databse_url", "database_url"),
        ("[auth]\nrequests_per_minute = 'many'", "auth.requests_per_minute", "integer"),
    ],
)
def test_a_setting_that_is_none(install: Product, text: str, key: str, near: str) -> None:
    install.home.mkdir()
    install.home.joinpath("coderai.toml").write_text(text)
    refused(install, key, near, "coderai.toml")


def test_a_first_start_that_fails_does_not_keep_the_key_to_itself(install: Product) -> None:
    """It is made before the front runs and stands in the database: shown never, it would lock its owner out."""
    install.home.mkdir()
    config = install.home / "coderai.toml"
    config.write_text("[[model]]\nname = 'odd'\nservice_url = 'gopher://box'\n")
    said = refused(install, "'odd'", "service_url", "coderai.toml")
    key = said.partition("shown this once): ")[2].split()[0]
    config.unlink()
    install.key = key
    install.start()
    assert install.get("/v1/models")["data"] == []


def test_a_database_of_a_newer_version(install: Product) -> None:
    install.told("tokens", "list")
    with sqlite3.connect(install.home / "coderai.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    refused(install, "9999", "newer version")


def test_a_damaged_database(install: Product) -> None:
    install.home.mkdir()
    install.home.joinpath("coderai.db").write_bytes(b"this is no database " * 500)
    refused(install, "damaged", "coderai.db")


def test_a_database_that_was_cut_off(install: Product) -> None:
    install.told("tokens", "create", "someone")
    path = install.home / "coderai.db"
    os.truncate(path, path.stat().st_size // 2)
    refused(install, "damaged", "coderai.db")


def test_a_second_server_of_one_home(install: Product) -> None:
    install.start()
    assert install.process is not None
    second = Product(install.home, settings=QUICK)
    second.log_path = install.home.with_name("second.log")
    done = second.run("serve", within_s=20)
    assert done.returncode not in (0, None)
    assert f"process {install.process.pid}" in done.stderr
    assert str(install.home) in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr
    assert install.get("/v1/models")["data"] == [], "the first goes on"
    assert install.stop() == 0
    second.key = install.key
    assert second.start() < 10, "the lock goes with its holder"
    assert second.stop() == 0


def test_the_lock_of_a_killed_server_binds_nobody(install: Product) -> None:
    install.start()
    assert install.process is not None
    family = install.processes()
    install.process.send_signal(signal.SIGKILL)
    install.process.wait()
    install.assert_nothing_left(family)
    install.start()
    assert install.stop() == 0


def test_weights_that_were_cut_off(install: Product, tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    os.truncate(path, path.stat().st_size // 2)
    done = install.run("models", "add", str(path))
    assert done.returncode == 1
    assert "tiny.gguf" in done.stderr
    assert "Traceback" not in done.stderr
    assert "tiny" not in install.told("models", "list")


def test_weights_that_only_llama_cpp_finds_wrong(install: Product, tmp_path: Path) -> None:
    """The header is fine, the tensors are not those of the architecture: 503 with llama.cpp's words, and on it goes."""
    broken, sound = tmp_path / "broken.gguf", write_tiny_llama(tmp_path / "sound.gguf")
    broken.write_bytes(sound.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_z.weight"))
    install.told("models", "add", str(broken))
    install.told("models", "add", str(sound))
    install.start()
    client = install.client()
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="broken", messages=[{"role": "user", "content": "x"}])
    assert caught.value.status_code == 503
    assert caught.value.code == "model_load_failed"
    assert "tensor 'blk.1.attn_q.weight' not found" in caught.value.message
    answer = client.chat.completions.create(
        model="sound", messages=[{"role": "user", "content": "x"}], max_tokens=2, temperature=0
    )
    assert answer.usage is not None
    assert set(install.engines()) == {"sound"}


def test_a_full_disk(install: Product) -> None:
    """Nothing half-written is left, and with room again it starts."""
    with mounted(install.home, "size=512k"):
        filler = install.home / "filler"
        with pytest.raises(OSError, match="No space"):
            fill(filler)
        refused(install, str(install.home), "full")
        left = [path for path in install.home.rglob("*") if path.is_file() and path != filler]
        assert not [path for path in left if path.suffix in (".tmp", ".part")], left
        filler.unlink()
        assert install.start() < 20
        assert install.get("/v1/models")["data"] == []
        assert install.stop() == 0


def test_a_disk_that_is_full_while_models_are_made_ready(tmp_path: Path) -> None:
    """The others are offered, the one that found no room is not, and no piece of it stays."""
    served = Product(tmp_path / "home")
    with mounted(served.home, "size=64m"):
        served.start()
        try:
            assert CHAT in {model["id"] for model in served.get("/v1/models")["data"]}
            assert "qwen2.5-coder-0.5b-instruct is not offered" in served.log.replace("\n", " ")
            left = [path.name for path in (served.home / "models" / "packaged").iterdir()]
            assert not [name for name in left if name.endswith(".part")], left
        finally:
            assert served.stop() == 0


def test_a_second_start_is_quick(make_product: MakeProduct, capsys: pytest.CaptureFixture[str]) -> None:
    """A first start from ready models, then another: /healthz and the models within seconds."""
    served = make_product()
    first_s = served.start()
    assert served.stop() == 0
    second_s = served.start()
    models = {model["id"] for model in served.get("/v1/models")["data"]}
    assert CHAT in models
    assert "shown this once" not in served.log.partition("Use the key you have")[2]
    assert served.stop() == 0
    with capsys.disabled():
        print(f"\nfirst start {first_s:.2f} s, second {second_s:.2f} s until /healthz answers")
    assert second_s < 10


def test_a_port_of_the_systems_choice(install: Product) -> None:
    """Port 0: the greeting tells which one it became."""
    install.environment["CODERAI_SERVER__PORT"] = "0"
    with install.log_path.open("wb") as log:
        install.process = subprocess.Popen(
            [COMMAND, "serve"],
            stdout=log,
            stderr=log,
            env=install.environment,
            start_new_session=True,
        )
    told = eventually(
        lambda: "serves on http://127.0.0.1:" in install.log and install.log, 20, what=lambda: install.log
    )
    install.port = int(str(told).partition("serves on http://127.0.0.1:")[2].partition("/")[0])
    assert install.healthy()


def fill(path: Path) -> None:
    """Write until the disk is full, to its last page."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small memory disk at `folder`; the test is skipped where we may not mount one."""
    folder.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)
