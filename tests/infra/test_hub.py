"""Hub ids become files to download, by a real server that speaks a hub's API."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from infra.downloads import DownloadFailed, download
from infra.egress import Egress
from infra.errors import Forbidden, InvalidRequest, NotFound
from infra.hub import choose_gguf, is_hub_id, resolve_hub_id
from infra.types import HubId

EGRESS = Egress(allow_private=True)
REPO = HubId("a/b")
SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of b"hello"
FILES = ["README.md", "q/tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "mmproj-F16.gguf"]


@pytest.fixture
async def hub() -> AsyncIterator[str]:
    async def info(request: web.Request) -> web.Response:
        repo = request.match_info["repo"]
        if repo == "gated" and request.headers.get("Authorization") != "Bearer hush":
            return web.json_response({"error": "gated"}, status=401)
        if repo not in ("tiny", "gated"):
            return web.json_response({"error": "not found"}, status=404)
        return web.json_response({"id": repo, "sha": "0" * 40, "siblings": [{"rfilename": name} for name in FILES]})

    async def tree(_request: web.Request) -> web.Response:
        lfs = {"oid": SHA256, "size": 5, "pointerSize": 130}
        return web.json_response([{"type": "file", "path": name, "size": 5, "oid": "x", "lfs": lfs} for name in FILES])

    async def resolve(request: web.Request) -> web.Response:
        return web.Response(text="hello" if request.match_info["path"] == "q/tiny-Q4_K_M.gguf" else "other")

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    app = web.Application()
    app.router.add_get("/api/models/owner/{repo}", info)
    app.router.add_get("/api/models/owner/{repo}/tree/main", tree)
    app.router.add_get("/owner/{repo}/resolve/main/{path:.+}", resolve)
    app.router.add_get("/api/models/page/page", page)
    async with TestServer(app, host="127.0.0.1") as running:
        yield str(running.make_url("/"))


async def test_an_id_becomes_a_verified_file(hub: str, tmp_path: Path) -> None:
    (file,) = await resolve_hub_id(HubId("owner/tiny"), hub, EGRESS)
    assert file.name == "tiny-Q4_K_M.gguf"
    assert (file.source.sha256, file.source.size_bytes) == (SHA256, 5)
    await download(file.source, tmp_path / file.name, EGRESS)
    assert (tmp_path / "tiny-Q4_K_M.gguf").read_bytes() == b"hello"
    (other,) = await resolve_hub_id(HubId("owner/tiny:q8_0"), hub, EGRESS)
    assert other.name == "tiny-Q8_0.gguf"


async def test_a_gated_repository_wants_the_token(hub: str) -> None:
    with pytest.raises(Forbidden, match=r"models\.hub_token"):
        await resolve_hub_id(HubId("owner/gated"), hub, EGRESS)
    (file,) = await resolve_hub_id(HubId("owner/gated"), hub, EGRESS, SecretStr("hush"))
    assert file.source.bearer is not None
    assert "hush" not in repr(file)


async def test_what_is_not_there_or_no_hub(hub: str, unused_tcp_port: int) -> None:
    with pytest.raises(NotFound, match="spelling"):
        await resolve_hub_id(HubId("owner/missing"), hub, EGRESS)
    with pytest.raises(DownloadFailed, match=r"models\.hub_url"):
        await resolve_hub_id(HubId("page/page"), hub, EGRESS)
    with pytest.raises(DownloadFailed, match="does not answer"):
        await resolve_hub_id(HubId("owner/tiny"), f"http://127.0.0.1:{unused_tcp_port}", EGRESS)
    with pytest.raises(Forbidden, match="no public address"):
        await resolve_hub_id(HubId("owner/tiny"), hub, Egress())


@pytest.mark.parametrize(
    "bad", ["", "tiny", "a/b/c", "../b", "a/..", "a/b:", "a/b?x", "a/b:Q4/x", "a b/c", "http://a/b"]
)
async def test_what_is_no_id(bad: str) -> None:
    assert not is_hub_id(bad)
    with pytest.raises(InvalidRequest):
        await resolve_hub_id(HubId(bad), "http://127.0.0.1:9", EGRESS)


def test_the_quantisation_is_a_word_of_its_own() -> None:
    paths = ["m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.IQ4_XS.gguf"]
    assert choose_gguf(REPO, paths, None) == ("m-Q4_K_M.gguf",)
    assert choose_gguf(REPO, paths, "q4_k") == ("m-Q4_K.gguf",)
    assert choose_gguf(REPO, paths, "IQ4_XS") == ("m.IQ4_XS.gguf",)
    assert choose_gguf(REPO, ["only-F16.gguf", "mmproj-only.gguf"], None) == ("only-F16.gguf",)
    with pytest.raises(
        InvalidRequest, match=r"no model of Q6_K is there.*There is: m-Q4_K, m-Q4_K_M, m-Q4_K_S, m\.IQ4_XS"
    ):
        choose_gguf(REPO, paths, "Q6_K")
    with pytest.raises(InvalidRequest, match="no model of Q4_K_M is there"):
        choose_gguf(REPO, ["m-Q5_0.gguf", "m-Q8_0.gguf"], None)
    with pytest.raises(InvalidRequest, match="no model of Q6_K is there"):
        choose_gguf(REPO, ["only-F16.gguf"], "Q6_K")
    with pytest.raises(InvalidRequest, match="several models match"):
        choose_gguf(REPO, ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], None)
    with pytest.raises(InvalidRequest, match="no GGUF"):
        choose_gguf(REPO, ["model.safetensors", "mmproj-F16.gguf", "evil\n.gguf"], None)


def test_a_split_model_is_all_its_parts() -> None:
    parts = [f"Q4_K_M/m-Q4_K_M-0000{n}-of-00003.gguf" for n in (3, 1, 2)]
    assert choose_gguf(REPO, [*parts, "m-Q8_0.gguf"], None) == tuple(sorted(parts))
    with pytest.raises(InvalidRequest, match="2 of its 3 parts"):
        choose_gguf(REPO, parts[:2], None)


def test_a_name_that_leads_out_of_the_folder_is_no_choice() -> None:
    with pytest.raises(InvalidRequest, match="no GGUF"):
        choose_gguf(REPO, ["../../m-Q4_K_M.gguf", "x/.hidden-Q4_K_M.gguf"], None)
