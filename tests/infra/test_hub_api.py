"""What a hub says of a repository, by a server that is as strict."""

import hashlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from infra.downloads import DownloadFailed
from infra.egress import Egress
from infra.errors import Forbidden, InvalidRequest, NotFound
from infra.hub_api import HubApi
from tests.hub import REVISION, TOKEN, Hub, running_hub

pytestmark = pytest.mark.enable_socket

EGRESS = Egress(allow_private=True)
LARGE = b"weights" * 1000


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    files = {f"unet/part-{number}.json": b"{}" for number in range(8)} | {
        "unet/large.safetensors": LARGE,
        "a b.txt": b"x",
    }
    async with running_hub(files) as running:
        yield running


async def test_every_page_of_one_revision(hub: Hub) -> None:
    listing = await HubApi(hub.url + "/", EGRESS).list_files("own/repo")
    assert (listing.repo, listing.revision) == ("own/repo", REVISION)
    assert set(listing.entries) == set(hub.files)
    large, small = listing.entries["unet/large.safetensors"], listing.entries["a b.txt"]
    assert (large.size_bytes, large.sha256) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
    assert (small.size_bytes, small.sha256) == (1, None)
    assert small.identity != large.identity
    source = listing.source("a b.txt")
    assert source.url == f"{hub.url}/own/repo/resolve/{REVISION}/a%20b.txt"
    assert (source.size_bytes, source.sha256) == (1, None)


async def test_a_small_file_s_bytes(hub: Hub) -> None:
    api = HubApi(hub.url, EGRESS)
    assert await api.read_file(await api.list_files("own/repo"), "a b.txt") == b"x"


async def test_a_gated_repository_wants_the_token(hub: Hub) -> None:
    hub.gated = True
    with pytest.raises(Forbidden, match=r"models\.hub_token"):
        await HubApi(hub.url, EGRESS).list_files("own/repo")
    api = HubApi(hub.url, EGRESS, SecretStr(TOKEN))
    listing = await api.list_files("own/repo")
    assert await api.read_file(listing, "a b.txt") == b"x"
    assert TOKEN not in repr(listing)


async def test_what_is_not_there_or_no_hub(hub: Hub, unused_tcp_port: int) -> None:
    with pytest.raises(NotFound, match="spelling"):
        await HubApi(hub.url, EGRESS).list_files("own/missing")
    with pytest.raises(DownloadFailed, match="does not answer"):
        await HubApi(f"http://127.0.0.1:{unused_tcp_port}", EGRESS).list_files("own/repo")
    with pytest.raises(Forbidden, match="no public address"):
        await HubApi(hub.url, Egress()).list_files("own/repo")


@pytest.mark.parametrize(
    ("body", "link", "error", "words"),
    [
        ("<html>", "", DownloadFailed, r"models\.hub_url"),
        ("[" * 100_000, "", DownloadFailed, r"models\.hub_url"),
        ("[]", '<http://127.0.0.1:9/next>; rel="next"', InvalidRequest, "another server"),
    ],
)
async def test_a_server_that_is_no_hub(body: str, link: str, error: type[Exception], words: str) -> None:
    async def anything(request: web.Request) -> web.Response:
        tree = "/tree/" in request.path
        return web.Response(text=body if tree else '{"sha": null}', headers={"Link": link} if tree else {})

    app = web.Application()
    app.router.add_get("/{path:.*}", anything)
    async with TestServer(app, host="127.0.0.1") as server:
        with pytest.raises(error, match=words):
            await HubApi(str(server.make_url("/")), EGRESS).list_files("own/repo")
