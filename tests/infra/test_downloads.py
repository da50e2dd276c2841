"""Downloads from a real server that drops, ignores, lies, changes its mind and redirects."""

import asyncio
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.downloads import DownloadFailed, Retry, Source, WrongFile, download
from infra.egress import Egress
from infra.errors import Conflict, DiskFull, Forbidden, InvalidRequest, NotFound

BODY = os.urandom(3_000_000)
SHA256 = hashlib.sha256(BODY).hexdigest()
EGRESS = Egress(allow_private=True)
QUICK = Retry(attempts=4, backoff_s=0.001)


@dataclass
class Behaviour:
    """What the server does; `seen` are the requests' Range headers."""

    body: bytes = BODY
    etag: str | None = '"one"'
    ranges: bool = True
    drop_after_bytes: int | None = None
    drops: int = 0
    announced_bytes: int | None = None
    chunked: bool = False
    stall: asyncio.Event | None = None
    statuses: list[int] = field(default_factory=list)
    encoding: str | None = None
    seen: list[str | None] = field(default_factory=list)


class Server:
    """A file at `/model`."""

    def __init__(self) -> None:
        self.does = Behaviour()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        does = self.does
        does.seen.append(request.headers.get("Range"))
        assert request.headers["Accept-Encoding"] == "identity"
        if does.statuses:
            return web.Response(status=does.statuses.pop(0))
        start = self._start(request)
        if start == len(does.body):
            return web.Response(status=416, headers={"Content-Range": f"bytes */{start}"})
        response = web.StreamResponse(status=206 if start else 200)
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(does.body) - 1}/{len(does.body)}"
        if does.etag:
            response.headers["ETag"] = does.etag
        if does.encoding:
            response.headers["Content-Encoding"] = does.encoding
        if not does.chunked:
            response.content_length = does.announced_bytes or len(does.body) - start
        await response.prepare(request)
        await self._send(request, response, does.body[start:])
        return response

    def _start(self, request: web.Request) -> int:
        wanted = request.headers.get("Range")
        unchanged = request.headers.get("If-Range") in (None, self.does.etag)
        return int(wanted[6:-1]) if wanted and self.does.ranges and unchanged else 0

    async def _send(self, request: web.Request, response: web.StreamResponse, body: bytes) -> None:
        does = self.does
        if does.drops and does.drop_after_bytes is not None:
            does.drops -= 1
            await response.write(body[: does.drop_after_bytes])
            if does.stall is not None:
                await does.stall.wait()
            assert request.transport is not None
            request.transport.close()
        else:
            await response.write(body)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def url(server: Server) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/model", server.answer)
    async with TestServer(app, host="127.0.0.1") as running:
        yield str(running.make_url("/model"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_file_arrives_whole_private_and_counted(server: Server, url: str, tmp_path: Path) -> None:
    steps: list[tuple[int, int | None]] = []
    target = tmp_path / "models" / "model.gguf"
    source = Source(url, SHA256, len(BODY))
    assert await download(source, target, EGRESS, progress=lambda done, total: steps.append((done, total))) == target
    assert target.read_bytes() == BODY
    assert target.stat().st_mode & 0o777 == 0o600
    assert names(target.parent) == ["model.gguf"]
    assert steps[0] == (0, len(BODY))
    assert steps[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert server.does.seen == [None]


async def test_a_dropped_connection_goes_on_where_it_broke(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(drop_after_bytes=1_000_000, drops=2)
    await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert (tmp_path / "m").read_bytes() == BODY
    assert server.does.seen == [None, "bytes=1000000-", "bytes=2000000-"]


async def test_a_server_that_ignores_ranges_starts_over(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(drop_after_bytes=1_000_000, drops=2, ranges=False)
    await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert (tmp_path / "m").read_bytes() == BODY
    assert len(server.does.seen) == 3


async def test_a_part_that_nobody_can_vouch_for_is_not_gone_on_from(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(drop_after_bytes=1_000_000, drops=1, etag=None)
    await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert server.does.seen == [None, None]
    server.does = Behaviour(drop_after_bytes=1_000_000, drops=1, etag='W/"weak"')
    await download(Source(url, SHA256), tmp_path / "m", EGRESS, retry=QUICK)
    assert server.does.seen == [None, "bytes=1000000-"]
    assert (tmp_path / "m").read_bytes() == BODY


async def test_a_cancel_keeps_the_part_for_the_next_time(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(drop_after_bytes=1_500_000, drops=1, stall=asyncio.Event())
    arrived = asyncio.Event()

    def note(done: int, _total: int | None) -> None:
        if done:
            arrived.set()

    running = asyncio.create_task(download(Source(url), tmp_path / "m", EGRESS, progress=note))
    await asyncio.wait_for(arrived.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert server.does.stall is not None
    server.does.stall.set()
    assert names(tmp_path) == ["m.part", "m.part.json"]
    kept = (tmp_path / "m.part").stat().st_size
    assert kept >= 1 << 20
    server.does = Behaviour()
    await download(Source(url), tmp_path / "m", EGRESS)
    assert (tmp_path / "m").read_bytes() == BODY
    assert server.does.seen == [f"bytes={kept}-"]
    assert names(tmp_path) == ["m"]


async def interrupted(server: Server, url: str, target: Path, sha256: str | None = None) -> None:
    server.does = Behaviour(drop_after_bytes=1_000_000, drops=1)
    with pytest.raises(DownloadFailed, match="1000000 bytes are kept, start it again"):
        await download(Source(url, sha256), target, EGRESS, retry=Retry(attempts=1))


async def test_a_changed_etag_starts_over(server: Server, url: str, tmp_path: Path) -> None:
    await interrupted(server, url, tmp_path / "m")
    server.does = Behaviour(body=BODY[::-1], etag='"two"')
    await download(Source(url), tmp_path / "m", EGRESS)
    assert (tmp_path / "m").read_bytes() == BODY[::-1]
    assert server.does.seen == ["bytes=1000000-"]


async def test_a_server_that_ignores_if_range_is_found_out(server: Server, url: str, tmp_path: Path) -> None:
    await interrupted(server, url, tmp_path / "m")

    class Careless(Server):
        def _start(self, request: web.Request) -> int:
            wanted = request.headers.get("Range")
            return int(wanted[6:-1]) if wanted else 0

    careless = Careless()
    careless.does = Behaviour(body=BODY[::-1], etag='"two"')
    server.does = careless.does
    server._start = careless._start  # type: ignore[method-assign]
    await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert (tmp_path / "m").read_bytes() == BODY[::-1]
    assert server.does.seen == ["bytes=1000000-", None]


async def test_a_whole_part_needs_only_its_name(server: Server, url: str, tmp_path: Path) -> None:
    await interrupted(server, url, tmp_path / "m", SHA256)
    (tmp_path / "m.part").write_bytes(BODY)
    server.does = Behaviour()
    await download(Source(url, SHA256), tmp_path / "m", EGRESS)
    assert server.does.seen == [f"bytes={len(BODY)}-"]
    assert (tmp_path / "m").read_bytes() == BODY


async def test_a_file_that_became_shorter_starts_over(server: Server, url: str, tmp_path: Path) -> None:
    await interrupted(server, url, tmp_path / "m")
    server.does = Behaviour(body=BODY[:1000], statuses=[416])
    await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert (tmp_path / "m").read_bytes() == BODY[:1000]


async def test_the_wrong_content_is_removed(server: Server, url: str, tmp_path: Path) -> None:
    with pytest.raises(WrongFile, match="its SHA-256 is") as caught:
        await download(Source(url + "?sig=hush", "0" * 64), tmp_path / "m", EGRESS)
    assert names(tmp_path) == []
    assert "hush" not in caught.value.message


@pytest.mark.parametrize("chunked", [True, False])
async def test_another_size_than_expected_is_refused(server: Server, url: str, tmp_path: Path, chunked: bool) -> None:
    server.does = Behaviour(chunked=chunked)
    with pytest.raises(WrongFile, match="not the expected file"):
        await download(Source(url, size_bytes=1_000_000), tmp_path / "m", EGRESS)
    assert names(tmp_path) == []


async def test_a_server_that_promises_more_than_it_sends(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(announced_bytes=5_000_000, drop_after_bytes=3_000_000, drops=99, ranges=False)
    with pytest.raises(DownloadFailed, match="4 times in a row"):
        await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert not (tmp_path / "m").exists()


async def test_a_file_of_unknown_length_is_taken(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(chunked=True)
    await download(Source(url), tmp_path / "m", EGRESS)
    assert (tmp_path / "m").read_bytes() == BODY


async def test_a_server_in_trouble_is_asked_again(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(statuses=[503, 429, 500])
    await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert len(server.does.seen) == 4
    server.does = Behaviour(statuses=[503] * 4)
    with pytest.raises(DownloadFailed, match="the server answers 503, 4 times in a row"):
        await download(Source(url), tmp_path / "m2", EGRESS, retry=QUICK)


@pytest.mark.parametrize(
    ("status", "error"), [(404, NotFound), (410, NotFound), (401, Forbidden), (403, Forbidden), (400, InvalidRequest)]
)
async def test_a_refusal_is_final(
    server: Server, url: str, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    server.does = Behaviour(statuses=[status])
    with pytest.raises(error, match=str(status)):
        await download(Source(url), tmp_path / "m", EGRESS, retry=QUICK)
    assert len(server.does.seen) == 1


async def test_a_compressed_answer_is_refused(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(encoding="gzip")
    with pytest.raises(WrongFile, match="compressed"):
        await download(Source(url), tmp_path / "m", EGRESS)


async def test_a_server_that_is_gone(unused_tcp_port: int, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match="4 times in a row"):
        await download(Source(f"http://127.0.0.1:{unused_tcp_port}/m"), tmp_path / "m", EGRESS, retry=QUICK)


async def test_a_private_address_is_refused_before_anything_is_made(url: str, tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match="no public address"):
        await download(Source(url), tmp_path / "deep" / "m", Egress())
    with pytest.raises(InvalidRequest):
        await download(Source("file:///etc/passwd"), tmp_path / "deep" / "m", EGRESS)
    with pytest.raises(InvalidRequest, match="64 hex digits"):
        await download(Source(url, "ABC"), tmp_path / "deep" / "m", EGRESS)
    assert names(tmp_path) == []


async def test_two_downloads_of_one_file_do_not_mix(server: Server, url: str, tmp_path: Path) -> None:
    server.does = Behaviour(drop_after_bytes=2_000_000, drops=1, stall=asyncio.Event())
    arrived = asyncio.Event()
    first = asyncio.create_task(
        download(Source(url), tmp_path / "m", EGRESS, retry=QUICK, progress=lambda done, _total: arrived.set())
    )
    await asyncio.wait_for(arrived.wait(), 10)
    with pytest.raises(Conflict):
        await download(Source(url), tmp_path / "m", EGRESS)
    assert server.does.stall is not None
    server.does.stall.set()
    await first
    assert (tmp_path / "m").read_bytes() == BODY


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_full_disk_keeps_nothing(server: Server, url: str, small_disk: Path, chunked: bool) -> None:
    server.does = Behaviour(chunked=chunked)  # without a length it is noticed while writing
    with pytest.raises(DiskFull, match="Make room"):
        await download(Source(url), small_disk / "m", EGRESS, retry=QUICK, reserve_bytes=0)
    assert names(small_disk) == []
