"""The server under test: an ordinary install whose file gives the suite's model names to real models.

The suite asks for `gpt-6-astra` and the like. They are aliases here, as any operator may configure them; the product
has no test mode. The longest answer where a request names none is an operator's setting too: most cases name none, and
a small model that finds no end would fill its whole context in every one of them.
"""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.ours import Install
from workers.packaged import PACKAGED, prepare_one

TEXT_MODEL, EMBEDDING_MODEL = "smollm2-135m-instruct", "all-minilm-l6-v2"
TEXT_ALIASES = ("gpt-6-astra", "gpt-3.5-turbo-instruct", "model")
EMBEDDING_ALIASES = ("text-embedding-3-small",)
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
"""


@dataclass(frozen=True)
class Served:
    """Where to ask, and the key to ask with (kept in a file, so that it stands in no process's arguments)."""

    port: int
    key_file: Path

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
        config = _CONFIG.format(
            chat=_bring(TEXT_MODEL, home, models),
            embed=_bring(EMBEDDING_MODEL, home, models),
            chat_aliases=_quoted(TEXT_ALIASES),
            embed_aliases=_quoted(EMBEDDING_ALIASES),
        )
        install = Install(home, {"MODELS__PACKAGED": "false"}, config)
        key_file = Path(scratch) / "key"
        key_file.touch(mode=0o600)
        key_file.write_text(install.create_key("conformance"))
        with install:
            yield Served(install.port, key_file)


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
