"""The server under test: an ordinary install whose file gives the suite's model names to real models.

The suite asks for `gpt-6-astra` and the like. They are aliases here, as any operator may configure them; the product
has no test mode. The longest answer where a request names none is an operator's setting too: most cases name none, and
a small model that finds no end would fill its whole context in every one of them.
"""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.exchange import Answer, get, post
from benchmarks.ours import Install
from benchmarks.processes import StartFailed
from tests.tiny_diffusers import write_tiny_sd15
from workers.packaged import PACKAGED, prepare_one

TEXT_MODEL, EMBEDDING_MODEL, SPEECH_MODEL = "smollm2-135m-instruct", "all-minilm-l6-v2", "whisper-base"
TEXT_ALIASES = ("gpt-6-astra", "gpt-3.5-turbo-instruct", "model")
EMBEDDING_ALIASES = ("text-embedding-3-small",)
TRANSCRIPTION_ALIASES = ("whisper-1", "gpt-4o-transcribe")
IMAGE_ALIASES = ("gpt-image-1.5", "gpt-image-2.5-flare")
FLOWS_S = 90.0
"""Seconds that the flow-run server may take to come up: batches need it."""
IMAGES_S = 300.0
"""Seconds that the model for images may take to be loaded, the import of torch included."""
_NO_RUN = "/v1/runs/00000000-0000-4000-8000-000000000000"
"""Whether it exists only the flow-run server knows."""
_IMAGES, _ONE_IMAGE = "/v1/images/generations", b'{"model":"images","prompt":"an otter","size":"64x64","steps":1}'
_CONFIG = """
[[model]]
name = "chat"
path = "{chat}"
aliases = [{chat_aliases}]
context_tokens = 2048
sampling = {{ max_tokens = 24 }}

[[model]]
name = "embed"
path = "{embed}"
aliases = [{embed_aliases}]

[[model]]
name = "whisper"
path = "{whisper}"
format = "whisper"
capabilities = ["stt"]
weights_bytes = {whisper_bytes}
aliases = [{whisper_aliases}]

[[model]]
name = "images"
path = "{images}"
format = "diffusers"
capabilities = ["images"]
weights_bytes = 600000
aliases = [{image_aliases}]
"""


@dataclass(frozen=True)
class Served:
    """Where to ask, and the keys to ask with (kept in files, so that they stand in no process's arguments);
    `environment` is that in which `coderai ...` means this install."""

    port: int
    key_file: Path
    admin_key_file: Path
    environment: dict[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        """The server's root."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        """The API key."""
        return self.key_file.read_text().strip()


@contextmanager
def serving() -> Iterator[Served]:
    """An install with real models, for as long as the block lasts.

    Raises:
        NotInstalled: the packages with the models are not installed.
    """
    with TemporaryDirectory(prefix="coderai-conformance-") as scratch:
        home = Path(scratch) / "home"
        models = home / "models"
        models.mkdir(parents=True)
        whisper = _bring(SPEECH_MODEL, home, models)
        config = _CONFIG.format(
            chat=_bring(TEXT_MODEL, home, models),
            embed=_bring(EMBEDDING_MODEL, home, models),
            whisper=whisper,
            whisper_bytes=(whisper / "model.bin").stat().st_size,
            chat_aliases=_quoted(TEXT_ALIASES),
            embed_aliases=_quoted(EMBEDDING_ALIASES),
            whisper_aliases=_quoted(TRANSCRIPTION_ALIASES),
            images=write_tiny_sd15(models / "images"),
            image_aliases=_quoted(IMAGE_ALIASES),
        )
        settings = {"MODELS__PACKAGED": "false", "LLAMA__LOAD_BASE_S": str(IMAGES_S)}
        install = Install(home, settings, config)
        key_file, admin_key_file = (_key_file(install, Path(scratch), scope) for scope in ("user", "admin"))
        with install:
            served = Served(install.port, key_file, admin_key_file, install.environment)
            _wait_for(404, FLOWS_S, lambda: get(served.port, _NO_RUN, served.key))
            _wait_for(200, IMAGES_S, lambda: post(served.port, _IMAGES, _ONE_IMAGE, served.key))
            yield served


def _key_file(install: Install, folder: Path, scope: str) -> Path:
    """A file with a new key."""
    file = folder / f"{scope}-key"
    file.touch(mode=0o600)
    file.write_text(install.create_key(f"conformance-{scope}", scope))
    return file


def _wait_for(status: int, within_s: float, ask: Callable[[], Answer]) -> None:
    """Return once the answer has this status.

    Raises:
        StartFailed: it never had.
    """
    give_up, answer = time.monotonic() + within_s, Answer(0, b"")
    while time.monotonic() < give_up:
        answer = ask()
        if answer.status == status:
            return
        time.sleep(0.5)
    raise StartFailed(f"no answer {status} within {within_s:.0f} s: {answer.status} {answer.text[:300]}")


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _bring(name: str, home: Path, models: Path) -> Path:
    """The model's GGUF inside the folder that an install may serve from."""
    source = asyncio.run(prepare_one(next(each for each in PACKAGED if each.name == name), home))
    if models in source.parents:
        return source
    target = models / source.name
    shutil.copyfile(source, target)
    return target
