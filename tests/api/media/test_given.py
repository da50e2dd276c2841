"""Files in JSON: base64, data URLs, and addresses of the public internet alone."""

import base64
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.media.given import Given, clean_name, fetch, read_given
from infra.egress import Egress
from infra.errors import Forbidden, InvalidRequest, PayloadTooLarge
from infra.types import Json

TEXT = base64.b64encode(b"hello").decode()


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (TEXT, Given("file-3", b"hello")),
        (f"data:image/png;base64,{TEXT}", Given("file-3", b"hello")),
        (f"{TEXT[:4]}\n{TEXT[4:]}", Given("file-3", b"hello")),
        ({"data": TEXT, "filename": "../../etc/x.png"}, Given("x.png", b"hello")),
        ("https://example.org/a/b.pdf?x=1", Given("b.pdf", url="https://example.org/a/b.pdf?x=1")),
        ({"url": "HTTP://example.org/", "filename": "c.pdf"}, Given("c.pdf", url="HTTP://example.org/")),
        ("http://example.org", Given("file-3", url="http://example.org")),
    ],
)
def test_a_file_in_json(value: Json, given: Given) -> None:
    assert read_given(value, "file", 3) == given


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        5,
        [],
        {},
        {"data": TEXT, "url": "http://x"},
        {"data": TEXT, "path": "/etc/passwd"},
        {"data": 5},
        "file:///etc/passwd",
        "/etc/passwd",
        "data:text/plain,hello",
        "data:image/png;base64",
        "http://[",
        "not base64!",
    ],
)
def test_what_is_no_file(value: Json) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read_given(value, "file", 1)
    assert raised.value.param == "file"


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("a.png", "a.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\docs\\b.pdf", "b.pdf"),
        ("a\r\nb\0", "ab"),
        ("", "file-7"),
        ("..", ".."),
        ("x" * 999, "x" * 255),
    ],
)
def test_a_name_is_no_path(name: str, clean: str) -> None:
    assert clean_name(name, 7) == clean


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound(request.query["to"])

    async def gone(_request: web.Request) -> web.Response:
        return web.Response(status=404)

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1000)

    app = web.Application()
    app.router.add_get("/page", page)
    app.router.add_get("/away", away)
    app.router.add_get("/gone", gone)
    made = TestServer(app, host="127.0.0.1")
    async with made:
        yield made


OPEN = Egress(allow_private=True)


async def _unknown(host: str) -> tuple[str, ...]:
    raise socket.gaierror(socket.EAI_NONAME, host)


@pytest.mark.enable_socket
async def test_an_address_is_fetched_within_limits(server: TestServer) -> None:
    page = str(server.make_url("/page"))
    assert await fetch(page, OPEN, 1000, param="file") == b"x" * 1000
    assert await fetch(str(server.make_url("/away?to=/page")), OPEN, 1000, param="file") == b"x" * 1000
    with pytest.raises(PayloadTooLarge) as large:
        await fetch(page, OPEN, 999, param="image")
    with pytest.raises(InvalidRequest, match="404") as gone:
        await fetch(str(server.make_url("/gone")), OPEN, 999, param="image")
    assert large.value.param == gone.value.param == "image"


@pytest.mark.enable_socket
async def test_private_addresses_and_redirects_to_them_are_refused(server: TestServer) -> None:
    with pytest.raises(Forbidden) as refused:
        await fetch(str(server.make_url("/page")), Egress(), 1000, param="image")
    assert (refused.value.param, refused.value.code) == ("image", "forbidden_address")
    for to in ("ftp://example.org/", "//user:pass@example.org/"):
        with pytest.raises(InvalidRequest):
            await fetch(str(server.make_url(f"/away?to={to}")), OPEN, 1000, param="file")
    page = str(server.make_url("/page"))
    await server.close()
    with pytest.raises(InvalidRequest, match=r"from 127\.0\.0\.1: no connection") as raised:
        await fetch(page, OPEN, 1000, param="file")
    assert raised.value.param == "file"
    with pytest.raises(InvalidRequest, match="the name of the host is unknown"):
        await fetch("http://nobody.invalid/a", Egress(allow_private=True, lookup=_unknown), 1000, param="file")
