"""Which addresses may be opened; names and redirects do not get around it."""

import ipaddress
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.egress import Egress
from infra.errors import CoderAIError, Forbidden, InvalidRequest

LOOPBACK = Egress(allowed_networks=(ipaddress.ip_network("127.0.0.1/32"),))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "100.64.0.1", "127.1", "2130706433", "0x7f.1", "[::1]", "[::]", "[fe80::1]", "[fc00::1]",
        "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[ff02::1]", "[fec0::1]",
        "[64:ff9b:1::7f00:1]",
    ],
)  # fmt: skip
def test_private_addresses_are_refused_in_every_notation(host: str) -> None:
    with pytest.raises(Forbidden, match="no public address"):
        Egress().check_url(f"http://{host}/x")
    Egress(allow_private=True).check_url(f"http://{host}/x")


@pytest.mark.parametrize(
    "host", ["1.1.1.1", "[2606:4700::1111]", "[64:ff9b::101:101]", "example.org", "example.org:81"]
)
def test_public_ones_are_not(host: str) -> None:
    assert str(Egress().check_url(f"https://{host}/x")) == f"https://{host}/x"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "file:///etc/passwd",
        "ftp://1.1.1.1/",
        "http://",
        "//1.1.1.1",
        "http://u:hush@1.1.1.1/",
        "http://[::1",
        "http://1.1.1.1/" + "x" * 8192,
        "http://1.1.1.1:99999",
    ],
)
def test_only_plain_http_urls_are_opened(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Egress(allow_private=True).check_url(url)
    assert "hush" not in caught.value.message


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query["to"]})

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=request.headers.get("Authorization", "nobody"))

    async def loop(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/loop"})

    app = web.Application()
    app.add_routes([web.get("/loop", loop), web.get("/redirect", redirect), web.get("/hello", hello)])
    running = TestServer(app, host="127.0.0.1")
    await running.start_server()
    yield running
    await running.close()


async def get(egress: Egress, url: str, bearer: str | None = None) -> str:
    async with egress.session() as session, egress.fetch(session, url, headers={}, bearer=bearer) as response:
        return await response.text()


async def test_a_name_is_checked_by_what_it_resolves_to_and_only_once(server: TestServer) -> None:
    answers = iter([("127.0.0.1",), ("127.0.0.1", "10.0.0.1"), ()])
    asked: list[str] = []

    async def lookup(host: str) -> tuple[str, ...]:
        asked.append(host)
        return next(answers)

    egress = Egress(allowed_networks=LOOPBACK.allowed_networks, lookup=lookup)
    url = f"http://box.test:{server.port}/hello"
    assert await get(egress, url) == "nobody"
    assert asked == ["box.test"]
    with pytest.raises(Forbidden, match=r"box\.test is at 10\.0\.0\.1"):
        await get(egress, url)
    with pytest.raises(OSError, match="no address"):
        await get(egress, url)


async def test_the_systems_resolver_is_checked_too() -> None:
    with pytest.raises(Forbidden, match="localhost is at"):
        await get(Egress(), "http://localhost:9/")


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64 + ".com", "xn--"])
async def test_what_can_be_no_name_of_a_host_has_no_address(host: str) -> None:
    with pytest.raises((OSError, InvalidRequest)):
        await get(Egress(), f"http://{host}/")


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("http://10.0.0.1/", Forbidden),
        ("http://127.0.0.2/", Forbidden),
        ("http://0x7f000002/", Forbidden),
        ("//169.254.169.254/latest/meta-data", Forbidden),
        ("file:///etc/passwd", InvalidRequest),
        ("http://user@127.0.0.1/", InvalidRequest),
        ("http://[::1", InvalidRequest),
    ],
)
async def test_a_redirect_is_checked_like_the_first_url(server: TestServer, to: str, error: type[CoderAIError]) -> None:
    with pytest.raises(error):
        await get(LOOPBACK, str(server.make_url("/redirect").with_query(to=to)))


async def test_redirects_end(server: TestServer) -> None:
    assert await get(LOOPBACK, str(server.make_url("/redirect").with_query(to="/hello"))) == "nobody"
    with pytest.raises(InvalidRequest, match="more than 10 times"):
        await get(LOOPBACK, str(server.make_url("/loop")))


async def test_a_token_stays_with_the_first_origin(server: TestServer) -> None:
    async def lookup(_host: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    egress = Egress(allow_private=True, lookup=lookup)
    here, elsewhere = server.make_url("/hello"), f"http://cdn.test:{server.port}/hello"
    redirect = server.make_url("/redirect")
    assert await get(egress, str(redirect.with_query(to=str(here))), "hush") == "Bearer hush"
    assert await get(egress, str(redirect.with_query(to=elsewhere)), "hush") == "nobody"
