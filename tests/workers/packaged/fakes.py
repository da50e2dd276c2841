"""Installed packages made of folders, with small models in them."""

import hashlib
from pathlib import Path

from infra.types import ModelName
from workers.packaged.catalogue import PackagedModel
from workers.packaged.files import Pin
from workers.types import Capability

PIECES = (b"GGUF" + bytes(3000), b"middle", b"end")


def pin_of(data: bytes) -> Pin:
    return Pin(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class FakePackages:
    """A site-packages folder; `find` is what the product asks instead of the import system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, package: str, file: str, data: bytes) -> Path:
        path = self.folder / package / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def find(self, package: str) -> Path | None:
        folder = self.folder / package
        return folder if folder.is_dir() else None


def joined_model() -> PackagedModel:
    whole = b"".join(PIECES)
    return PackagedModel(
        name=ModelName("joined-1b"),
        alias=ModelName("joined"),
        how="join",
        packages=("part_a", "part_b", "part_c"),
        files=("data/1.bin", "data/2.bin", "data/3.bin"),
        source=pin_of(whole),
        size_bytes=len(whole),
        architecture="llama",
        capabilities=(Capability.CHAT, Capability.COMPLETIONS),
        context_tokens=2048,
    )


def in_place_model(data: bytes) -> PackagedModel:
    return PackagedModel(
        name=ModelName("placed-1b"),
        alias=ModelName("placed"),
        how="in_place",
        packages=("placed",),
        files=("weights.gguf",),
        source=pin_of(data),
        size_bytes=len(data),
        architecture="llama",
        capabilities=(Capability.COMPLETIONS,),
        context_tokens=2048,
    )


def add_parts(packages: FakePackages) -> list[Path]:
    names = ("part_a", "part_b", "part_c")
    return [packages.add(name, f"data/{n}.bin", PIECES[n - 1]) for n, name in enumerate(names, start=1)]
