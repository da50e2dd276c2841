"""An operator's pages on a real socket, beside a fake of Prefect's server, and a browser's way to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp
import uvicorn
from starlette.responses import Response
from uvicorn.server import ServerState
from yarl import URL

from api.admin.sessions import COOKIE
from api.admin.site import Site
from api.asgi import ASGIApp
from api.auth import Auth
from api.front import WEBSOCKET_BYTES
from api.protocol import patient_protocol
from infra.database import Database, open_database
from infra.errors import NotFound
from infra.migrate import migrate
from infra.prefect_address import PrefectAddress
from infra.settings import Settings, load_settings
from infra.tokens import SCOPES, Key, TokenTable, create_key, revoke_key
from infra.types import RunId
from tests.fakes_prefect import FakePrefectServer

HTML = {"Accept": "text/html,application/xhtml+xml"}


@dataclass
class Parts:
    """What the site needs of the front's services."""

    settings: Settings
    auth: Auth
    prefect: PrefectAddress | None


@dataclass
class Answer:
    """A whole answer."""

    status: int
    headers: Any
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Operator:
    """The site, its keys, the server behind it, and a client that follows no redirect and keeps no cookie."""

    url: str
    port: int
    keys: dict[str, str]
    prefect: FakePrefectServer
    address: PrefectAddress
    session: aiohttp.ClientSession
    settings: Settings
    database: Database
    tokens: TokenTable
    site: Site
    cookie: str = ""
    faults: list[dict[str, Any]] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """What a browser calls us."""
        return self.url

    def bearer(self, scope: str = "admin") -> dict[str, str]:
        """The header that a key goes in."""
        return {"Authorization": f"Bearer {self.keys[scope]}"}

    def browser(self, **headers: str) -> dict[str, str]:
        """What a browser sends that has logged in, for a request that our own page makes."""
        given = {"Cookie": f"theme=dark; {COOKIE}={self.cookie}", "Origin": self.origin}
        return given | {name.replace("_", "-"): value for name, value in headers.items()}

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None, data: Any = None) -> Answer:
        """One request, its path as it is."""
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, headers=headers, data=data, allow_redirects=False) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        """A GET with an admin's key, unless headers say otherwise."""
        return await self.ask("GET", path, self.bearer() if headers is None else headers)

    async def log_in(self) -> None:
        """As a browser does it, by the form."""
        answer = await self.ask("POST", "/login", {"Origin": self.origin}, {"key": self.keys["admin"]})
        assert answer.status == 303, answer.text
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0].partition("=")[2]

    def revoke(self, scope: str = "admin") -> None:
        """End a key, and have the front look, as it does each second."""
        revoke_key(self.database, scope)
        self.tokens.refresh()


@contextlib.asynccontextmanager
async def operator(
    home: Path, prefect: PrefectAddress | str | None = "fake", **sections: Any
) -> AsyncIterator[Operator]:
    """Everything, running; `prefect` is where the site looks for the flow-run server, by default the fake."""
    settings = load_settings(home=home, **sections)
    settings.home.mkdir(mode=0o700, exist_ok=True)
    database = open_database(settings.sqlalchemy_url)
    migrate(database)
    keys: dict[str, str] = {scope: create_key(database, scope, scope) for scope in SCOPES}
    tokens = TokenTable(database)
    tokens.refresh()
    async with (
        FakePrefectServer() as fake,
        aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=("Accept-Encoding",)) as session,
    ):
        address = fake.address if isinstance(prefect, str) else prefect
        site = Site(Parts(settings, Auth(tokens, "internal-token"), address), answer_of)
        async with _served(site) as port:
            url = f"http://127.0.0.1:{port}"
            given = address or fake.address
            yield Operator(url, port, keys, fake, given, session, settings, database, tokens, site)
        await site.aclose()
    database.close()
    assert fake.complaints == []


ANSWERED = RunId("8f6c1d2e-0000-4000-8000-000000000000")


async def answer_of(key: Key, run: RunId) -> ASGIApp:
    """One run has left an answer."""
    if run != ANSWERED:
        raise NotFound(f"there is no run {run}")
    return cast(ASGIApp, Response(f"for {key.name}", media_type="text/plain"))


@contextlib.asynccontextmanager
async def _served(site: Site) -> AsyncIterator[int]:
    config = uvicorn.Config(
        site,
        loop="none",
        http=patient_protocol(5),
        ws="websockets-sansio",
        ws_max_size=WEBSOCKET_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
    )
    config.load()
    state = ServerState()
    protocol: Any = config.http_protocol_class
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await asyncio.sleep(0)
