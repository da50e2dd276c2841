"""Adapters from URLs and from the operator's folders: neither leads to what is not meant."""

import asyncio
import ipaddress
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from api.media import lora_sources
from api.media.lora_sources import LoraFile, SeenFiles, copy_from, fetch, open_below, suggested_name
from infra.egress import Egress
from infra.errors import Forbidden, InvalidRequest, PayloadTooLarge
from infra.file_store import FileStore
from tests.tiny_loras import safetensors

GOOD = safetensors()
HERE = Egress(allowed_networks=(ipaddress.IPv4Network("127.0.0.1/32"),))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "loras"
    (made / "owner" / "repo").mkdir(parents=True)
    (made / "a.safetensors").write_bytes(GOOD)
    (made / "owner" / "repo" / "pytorch_lora_weights.safetensors").write_bytes(GOOD)
    (made / "link").symlink_to("a.safetensors")
    return made


@pytest.fixture(params=[lora_sources._FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC], ids=["here", "macOS"])
def folders(request: pytest.FixtureRequest) -> int:
    """How folders are opened: where there is O_PATH, and where there is not."""
    return int(request.param)


def open_descriptors() -> int:
    """How many this process has; the next free one tells, wherever it runs."""
    low = [os.dup(0) for _ in range(3)]
    for each in low:
        os.close(each)
    return sum(low)


def read(text: str, *roots: Path) -> bytes:
    file, status = open_below(text, roots)
    with file:
        data = file.read()
    assert status.st_size == len(data)
    return data


def test_a_path_below_a_root_is_read(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for text in ("a.safetensors", str(root / "a.safetensors"), "link", "owner/../a.safetensors", "owner/repo"):
        assert read(text, other, tmp_path / "missing", root) == GOOD, text


def test_a_root_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert read("a.safetensors", tmp_path / "alias") == GOOD
    assert read(str(tmp_path / "alias" / "link"), tmp_path / "alias") == GOOD


def outside(root: Path) -> list[str]:
    """Paths that lead out, or to what is no file."""
    secret = root.parent / "secret"
    secret.mkdir()
    (secret / "b.safetensors").write_bytes(GOOD)
    (secret / "pytorch_lora_weights.safetensors").write_bytes(GOOD)
    (root.parent / "loras-too").mkdir()
    (root.parent / "loras-too" / "c.safetensors").write_bytes(GOOD)
    (root / "out").symlink_to(secret / "b.safetensors")
    (root / "folder").symlink_to(secret)
    (root / "round").symlink_to("round")
    (root / "nothing").symlink_to("missing")
    (root / "empty").mkdir()
    (root / "inner").mkdir()
    (root / "inner" / "pytorch_lora_weights.safetensors").mkdir()
    os.mkfifo(root / "pipe")
    return [
        *("../secret/b.safetensors", str(secret / "b.safetensors"), "/etc/passwd", "../loras-too/c.safetensors"),
        *("out", "folder", "folder/b.safetensors", "round", "nothing", "missing", "empty", "inner", "pipe"),
        *("", ".", "/", "a.safetensors\0", "\0", "~/x", "x" * 5000, "/proc/self/mem", "/dev/zero"),
    ]


def test_nothing_else_is(root: Path) -> None:
    for text in outside(root):
        with pytest.raises(InvalidRequest, match=r"no file below a folder of loras\.roots") as refused:
            open_below(text, [root])
        assert "permission" not in refused.value.message.lower()


@pytest.mark.parametrize("swapped", ["owner", "owner/repo", "owner/repo/pytorch_lora_weights.safetensors"])
def test_a_link_that_is_put_into_the_way_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch, swapped: str, folders: int
) -> None:
    """After the path was looked at, and before it is opened."""
    monkeypatch.setattr(lora_sources, "_FOLDER", folders)
    shutil.copytree(root, root.parent / "secret")
    name = root / "owner" / "repo" / "pytorch_lora_weights.safetensors"
    assert read(str(name), root) == GOOD

    def resolved(path: Path) -> Path | None:
        found = resolve(path)
        if found == name:
            (root / swapped).rename(root / "away")
            (root / swapped).symlink_to(root.parent / "secret" / swapped)
        return found

    resolve = lora_sources._resolved
    monkeypatch.setattr(lora_sources, "_resolved", resolved)
    descriptors = open_descriptors()
    with pytest.raises(InvalidRequest, match="no file below a folder"):
        open_below(str(name), [root])
    assert name.read_bytes() == GOOD  # it is there, at the end of a link
    assert open_descriptors() == descriptors


def test_no_descriptor_is_left_open(root: Path, folders: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora_sources, "_FOLDER", folders)
    descriptors = open_descriptors()
    for text in outside(root):
        with pytest.raises(InvalidRequest):
            open_below(text, [root])
    assert read("owner/repo", root) == GOOD
    assert open_descriptors() == descriptors


def test_without_roots_no_path_is_taken(root: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"loras\.roots is empty"):
        open_below(str(root / "a.safetensors"), [])


def test_a_file_that_has_not_changed_is_known(root: Path) -> None:
    seen, path = SeenFiles(), root / "a.safetensors"
    assert seen.find(path.stat()) is None
    seen.note(path.stat(), "sha256:abc")
    assert seen.find(path.stat()) == "sha256:abc"
    path.write_bytes(safetensors(fill=b"\x02"))
    assert seen.find(path.stat()) is None


def test_not_every_file_ever_is_remembered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.media.lora_sources._MOST_SEEN", 2)
    seen = SeenFiles()
    files = [root / "a.safetensors", root / "owner" / "repo" / "pytorch_lora_weights.safetensors", root]
    for file in files:
        seen.note(file.stat(), str(file))
    assert [seen.find(file.stat()) is not None for file in files] == [False, True, True]


def test_a_copy_is_checked_as_it_is_made(root: Path, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    incoming = store.begin(1 << 20)
    with (root / "a.safetensors").open("rb") as source:
        assert copy_from(source, LoraFile(incoming)).rank == 4
    incoming.place()
    (root / "a.safetensors").write_bytes(GOOD[:-1])
    small = store.begin(10)
    with (root / "a.safetensors").open("rb") as source, pytest.raises(PayloadTooLarge):
        copy_from(source, LoraFile(small))
    small.discard()


class Site:
    """A server with an adapter, a way to it, and a way elsewhere."""

    def __init__(self) -> None:
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/style.safetensors":
                return web.Response(body=GOOD)
            case "/moved":
                raise web.HTTPFound("/style.safetensors")
            case "/inside":
                raise web.HTTPFound("http://127.0.0.2:1/x")
            case "/broken":
                answer = web.StreamResponse(headers={"Content-Length": str(len(GOOD))})
                await answer.prepare(request)
                await answer.write(GOOD[:30])
                assert request.transport is not None
                request.transport.abort()
                return answer
            case _:
                raise web.HTTPNotFound


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def fetched(url: str, egress: Egress = HERE) -> bytes:
    data = bytearray()
    await fetch(url, egress, data.extend, param="loras")
    return bytes(data)


@pytest.mark.enable_socket
async def test_a_url_is_fetched_in_pieces(site: Site) -> None:
    assert await fetched(f"{site.url}/style.safetensors") == GOOD
    assert await fetched(f"{site.url}/moved") == GOOD
    assert suggested_name(f"{site.url}/style.safetensors?x=1") == "style.safetensors"


@pytest.mark.enable_socket
async def test_a_private_address_is_not_opened_nor_led_to(site: Site) -> None:
    with pytest.raises(Forbidden, match="no public address"):
        await fetched(f"{site.url}/style.safetensors", Egress())
    with pytest.raises(Forbidden, match="no public address"):
        await fetched(f"{site.url}/inside")
    for url in ("file:///etc/passwd", "ftp://example.org/x", "http://user:word@example.org/x"):
        with pytest.raises(InvalidRequest):
            await fetched(url)


@pytest.mark.enable_socket
async def test_what_does_not_come_is_said(site: Site) -> None:
    with pytest.raises(InvalidRequest, match="answers 404"):
        await fetched(f"{site.url}/missing")
    with pytest.raises(InvalidRequest, match="nothing could be fetched"):
        await fetched(f"{site.url}/broken")


@pytest.mark.enable_socket
async def test_what_the_disk_says_is_not_taken_for_the_network_s(site: Site) -> None:
    def full(_data: bytes) -> None:
        raise PayloadTooLarge("too large")

    with pytest.raises(PayloadTooLarge):
        await fetch(f"{site.url}/style.safetensors", HERE, full, param="loras")


@pytest.mark.enable_socket
async def test_it_does_not_take_for_ever(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.media.lora_sources.FETCH_S", 0.0)
    with pytest.raises(InvalidRequest, match="it took too long"):
        await fetched(f"{site.url}/style.safetensors")
    await asyncio.sleep(0)
