"""A model that is served as a folder: its weights joined, its small files beside them."""

import hashlib
from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from infra.types import ModelName
from tests.workers.packaged.fakes import FakePackages, pin_of
from workers.packaged.catalogue import Companion, PackagedModel, is_ready, packaged_entries, served_path
from workers.packaged.companions import place_companions
from workers.packaged.ready import prepare, prepare_one
from workers.types import Capability, ModelFormat

PIECES = (b"first", b"second")
CONFIG = b'{"a": 1}'


def model() -> PackagedModel:
    whole = b"".join(PIECES)
    return PackagedModel(
        name=ModelName("ears"),
        alias=ModelName("ear"),
        how="folder",
        packages=("one", "two"),
        files=("data/w.1", "data/w.2"),
        source=pin_of(whole),
        size_bytes=len(whole),
        architecture="whisper",
        capabilities=(Capability.STT,),
        context_tokens=448,
        format=ModelFormat.WHISPER,
        max_instances=2,
        companions=(Companion("one", "data/config.json", hashlib.sha256(CONFIG).hexdigest()),),
    )


@pytest.fixture
def packages(tmp_path: Path) -> FakePackages:
    made = FakePackages(tmp_path / "site")
    made.add("one", "data/w.1", PIECES[0])
    made.add("two", "data/w.2", PIECES[1])
    made.add("one", "data/config.json", CONFIG)
    return made


async def test_a_folder_is_made_and_served(tmp_path: Path, packages: FakePackages) -> None:
    home = tmp_path / "home"
    folder = await prepare_one(model(), home, find=packages.find)
    assert folder == served_path(model(), home, packages.find) == home / "models" / "packaged" / "ears"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "model.bin": b"firstsecond",
        "config.json": CONFIG,
    }
    assert is_ready(model(), home, packages.find)
    (entry,) = packaged_entries(home, (model(),), packages.find, only_ready=True)
    assert (entry.path, entry.format, entry.max_instances) == (folder, ModelFormat.WHISPER, 2)


async def test_a_small_file_that_is_lost_is_put_back(tmp_path: Path, packages: FakePackages) -> None:
    home = tmp_path / "home"
    folder = await prepare_one(model(), home, find=packages.find)
    (folder / "config.json").unlink()
    assert not is_ready(model(), home, packages.find)
    await prepare_one(model(), home, find=packages.find)
    assert (folder / "config.json").read_bytes() == CONFIG


async def test_another_small_file_than_the_pinned_one_is_not_served(tmp_path: Path, packages: FakePackages) -> None:
    packages.add("one", "data/config.json", b'{"a": 2}')
    (done,) = await prepare(tmp_path / "home", models=(model(),), find=packages.find)
    assert done.path is None
    assert done.problem is not None
    assert "not the pinned file" in done.problem
    assert not is_ready(model(), tmp_path / "home", packages.find)


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="one is missing"):
        place_companions(model().companions, tmp_path, lambda _package: None)
