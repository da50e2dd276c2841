"""Folders that are fetched: whole or not at all, gone on with after a break, checked before the large files come."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.downloads import WrongFile
from infra.egress import Egress
from infra.errors import Conflict, InvalidRequest
from infra.hub_api import HubApi
from infra.hub_folder import NOTE, fetch_folder
from tests.hub import Hub, running_hub

pytestmark = pytest.mark.enable_socket

EGRESS = Egress(allow_private=True)
LARGE = bytes(range(256)) * 2000
WEIGHTS = "model.fp16.safetensors"
FILES = {
    "config.json": b"{}",
    "vocab.txt": b"a\nb\n",
    "1_Pooling/config.json": b'{"a":1}',
    WEIGHTS: LARGE,
}
NAMES = {name: name for name in FILES if name != WEIGHTS} | {"model.safetensors": WEIGHTS}


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with running_hub(dict(FILES)) as running:
        yield running


class Told:
    """What was told on the way."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int, int]] = []

    def __call__(self, name: str, done_bytes: int, total_bytes: int) -> None:
        self.steps.append((name, done_bytes, total_bytes))


async def fetch(hub: Hub, target: Path, told: Told | None = None, refuse: bool = False) -> Path:
    def check(folder: Path) -> None:
        assert json.loads((folder / "config.json").read_bytes()) == {}
        assert not (folder / "model.safetensors").exists()
        if refuse:
            raise InvalidRequest("it wants code")

    listing = await HubApi(hub.url, EGRESS).list_files("own/repo")
    return await fetch_folder(listing, NAMES, target, EGRESS, told=told or Told(), check=check)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_all_files_by_their_names_in_the_folder(hub: Hub, tmp_path: Path) -> None:
    told = Told()
    target = await fetch(hub, tmp_path / "repo", told)
    found = content(target)
    assert json.loads(found.pop(NOTE))["repo"] == "own/repo"
    assert found == {name: FILES[path] for name, path in NAMES.items()}
    assert names_in(tmp_path) == ["repo"]
    whole = sum(map(len, FILES.values()))
    assert told.steps[-1] == ("model.safetensors", whole, whole)
    assert [done for _, done, _ in told.steps] == sorted(done for _, done, _ in told.steps)


async def test_what_is_there_is_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    await fetch(hub, tmp_path / "repo")
    hub.asked.clear()
    await fetch(hub, tmp_path / "repo")
    assert hub.asked == []


async def test_a_break_costs_no_byte_twice(hub: Hub, tmp_path: Path) -> None:
    hub.breaks_after = 100_000
    await fetch(hub, tmp_path / "repo")
    ranges = [wanted for path, wanted in hub.asked if path == WEIGHTS]
    assert ranges == [None, "bytes=100000-"]
    assert (tmp_path / "repo" / "model.safetensors").read_bytes() == LARGE


async def test_a_cancelled_fetch_leaves_no_folder_and_goes_on(hub: Hub, tmp_path: Path) -> None:
    seen = asyncio.Event()

    class Stop(Told):
        def __call__(self, name: str, done_bytes: int, total_bytes: int) -> None:
            if name == "model.safetensors" and done_bytes > 1000:
                seen.set()

    hub.breaks_after = 300_000  # so that the fetch is still on its way
    fetching = asyncio.create_task(fetch(hub, tmp_path / "repo", Stop()))
    await seen.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert not (tmp_path / "repo").exists()
    assert hub.fetched().count("config.json") == 1
    await fetch(hub, tmp_path / "repo")
    assert hub.fetched().count("config.json") == 1
    assert hub.asked[-1][1] is not None
    assert (tmp_path / "repo" / "model.safetensors").read_bytes() == LARGE
    assert names_in(tmp_path) == ["repo"]


async def test_what_is_refused_by_its_configuration_costs_nothing_large(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="it wants code"):
        await fetch(hub, tmp_path / "repo", refuse=True)
    assert sorted(hub.fetched()) == ["1_Pooling/config.json", "config.json"]
    assert not (tmp_path / "repo").exists()


async def test_a_file_that_is_not_what_the_hub_said(hub: Hub, tmp_path: Path) -> None:
    listing = await HubApi(hub.url, EGRESS).list_files("own/repo")
    hub.files["vocab.txt"] = b"other than listed"
    with pytest.raises(WrongFile):
        await fetch_folder(listing, NAMES, tmp_path / "repo", EGRESS, told=Told(), check=lambda _folder: None)
    assert not (tmp_path / "repo").exists()


async def test_a_newer_revision_replaces_the_folder_and_keeps_what_is_the_same(hub: Hub, tmp_path: Path) -> None:
    listing = await HubApi(hub.url, EGRESS).list_files("own/repo")
    await fetch(hub, tmp_path / "repo")
    hub.files["vocab.txt"] = b"c\n"
    hub.revision = "f" * 40
    await fetch(hub, tmp_path / "repo")
    assert (tmp_path / "repo" / "vocab.txt").read_bytes() == b"c\n"
    assert json.loads((tmp_path / "repo" / NOTE).read_bytes())["revision"] == "f" * 40 != listing.revision
    assert names_in(tmp_path) == ["repo"]


async def test_a_partial_folder_of_an_older_revision_gives_what_is_the_same(hub: Hub, tmp_path: Path) -> None:
    listing = await HubApi(hub.url, EGRESS).list_files("own/repo")
    (tmp_path / "repo.partial").mkdir()
    files = {name: listing.entries[path].identity for name, path in NAMES.items()} | {"gone.txt": "1"}
    files["vocab.txt"] = "another"
    note = {"repo": "own/repo", "revision": "e" * 40, "files": files}
    (tmp_path / "repo.partial" / NOTE).write_text(json.dumps(note))
    for name, data in {"config.json": b"{}", "vocab.txt": b"old", "gone.txt": b"", "stray": b"x"}.items():
        (tmp_path / "repo.partial" / name).write_bytes(data)
    await fetch(hub, tmp_path / "repo")
    assert "config.json" not in hub.fetched()
    assert set(content(tmp_path / "repo")) == {*NAMES, NOTE}
    assert (tmp_path / "repo" / "vocab.txt").read_bytes() == FILES["vocab.txt"]


async def test_something_else_in_its_place_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "mine.txt").write_text("mine")
    with pytest.raises(Conflict, match="in the way"):
        await fetch(hub, tmp_path / "repo")
    assert content(tmp_path / "repo") == {"mine.txt": b"mine"}
