"""A model's folder as its readers see it: its files by name, its JSON within limits, and nothing that could run.

Names that come out of the folder's own JSON lead nowhere else: each is one plain name.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from infra.errors import InvalidRequest
from infra.types import Json
from workers.gguf_header import open_regular

MOST_JSON_BYTES: Final = 16 << 20
MOST_FILES: Final = 10_000
"""A folder with more is no model's."""
MOST_DEPTH: Final = 6
PICKLES: Final = (".bin", ".ckpt", ".pt", ".pth", ".pkl")
"""Endings of weights that are Python pickles, as PyTorch writes them."""
_CODE: Final = (".py", ".pyc", ".so")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_KERNEL: Final = "_implementation"
"""What ends so may name a repository, such as `attn_implementation`: transformers would fetch its code and run it."""
ADAPTER: Final = "adapter_config.json"
"""Where transformers finds one, it loads the model that is named there, from wherever that lies."""


class Folder:
    """One folder. Every method raises InvalidRequest for what cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, *names: str) -> bool:
        """Whether any of these files is there."""
        return any((self.path / name).is_file() for name in names)

    def folder(self, name: object) -> "Folder":
        """A folder in it, by a name that its own JSON gave; an empty one means itself.

        Raises:
            InvalidRequest: this is no plain name.
        """
        return self if name == "" else Folder(self.path / self.plain(name))

    def plain(self, name: object) -> str:
        """A name that its own JSON gave.

        Raises:
            InvalidRequest: it could lead elsewhere.
        """
        if not isinstance(name, str) or not _PLAIN.fullmatch(name) or ".." in name:
            raise InvalidRequest(f"{self.path} names a part of itself {str(name)[:60]!r}, which is no plain name")
        return name

    def names(self) -> tuple[str, ...]:
        """Its files, without those of folders in it."""
        if not self.path.is_dir():
            return ()
        return tuple(sorted(each.name for each in self.path.iterdir() if each.is_file()))

    def require(self, *names: str) -> None:
        """Make sure that these files are there.

        Raises:
            InvalidRequest: one is missing.
        """
        missing = [name for name in names if not self.has(name)]
        if missing:
            raise InvalidRequest(f"{self.path} has no {', no '.join(missing)}: get the model again, with all its files")

    def json(self, name: str) -> dict[str, Json]:
        """A JSON object.

        Raises:
            InvalidRequest: it is not there, or is none.
        """
        found = self.parsed(name)
        if not isinstance(found, dict):
            raise InvalidRequest(f"{self.path / name} should be a JSON object: get it again")
        return found

    def optional(self, name: str) -> dict[str, Json]:
        """The same, empty where there is no such file."""
        return self.json(name) if self.has(name) else {}

    def parsed(self, name: str) -> Json:
        """Any JSON.

        Raises:
            InvalidRequest: it is not there, too large, or is none.
        """
        self.require(name)
        path = self.path / name
        with open_regular(path) as (file, size_bytes):
            if size_bytes > MOST_JSON_BYTES:
                raise InvalidRequest(f"{path} has {size_bytes} bytes: {MOST_JSON_BYTES} are the most")
            content = file.read(MOST_JSON_BYTES)
        try:
            found: Json = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest(f"{path} is no JSON ({error}): get it again") from error
        return found


def require_no_code(path: Path) -> None:
    """Make sure that nothing in the folder is code, and that nothing in it asks for code to be run.

    Raises:
        InvalidRequest: something is, or does; or the folder has too many files.
    """
    for file in walk(path):
        if file.suffix.lower() in _CODE:
            raise InvalidRequest(
                f"{file} is a program: code that comes with a model is never run. If the model works without it, "
                "remove it; else choose a model that its library knows"
            )
        if file.name == ADAPTER:
            raise InvalidRequest(
                f"{file} belongs to an adapter, which would be put on whatever model it names: get the whole model"
            )
        if file.name.endswith(".json") and "config" in file.name:
            word = _asks_for_code(Folder(file.parent).parsed(file.name))
            if word is not None:
                raise InvalidRequest(
                    f"{file} asks for code of its own ({word}), which is never run: choose a model that its library "
                    "knows"
                )


def walk(path: Path) -> Iterator[Path]:
    """Every file in the folder and below, hidden folders (`.git`, `.cache`) left out. A link to a folder counts as a
    file.

    Raises:
        InvalidRequest: there are too many, or they lie too deep.
    """
    count = 0
    for where, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if folders and len(Path(where).relative_to(path).parts) >= MOST_DEPTH:
            raise InvalidRequest(f"{path} is nested too deeply to be a model's folder: name the model's own")
        names += [name for name in folders if (Path(where) / name).is_symlink()]
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                raise InvalidRequest(f"{path} has more than {MOST_FILES} files: name the model's own folder")
            yield Path(where) / name


def _asks_for_code(value: Json) -> str | None:
    """The word by which a configuration refers to code, at whatever depth."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if one.get("auto_map"):
                return "auto_map"
            if one.get("trust_remote_code"):
                return "trust_remote_code"
            kernel = next((key for key in one if key.endswith(_KERNEL) and "/" in str(one[key])), None)
            if kernel is not None:
                return kernel
            left += one.values()
        elif isinstance(one, list):
            left += one
    return None
