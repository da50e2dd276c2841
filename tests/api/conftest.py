"""A whole front on a real socket, with engines that are servers on the same loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from api.app import App
from api.compose import open_front
from api.protocol import patient_protocol
from api.services import Services
from infra.database import open_database
from infra.listen import listen
from infra.migrate import migrate
from infra.settings import Settings, load_settings
from infra.tokens import create_key
from tests.fakes import FakeChildren
from tests.tiny_gguf import write_tiny_llama

TOKEN = "internal-token"


@dataclass
class Front:
    """A running front, its keys, its fake engines and a client."""

    url: str
    port: int
    keys: dict[str, str]
    children: FakeChildren
    services: Services
    session: aiohttp.ClientSession
    settings: Settings

    def headers(self, scope: str = "user") -> dict[str, str]:
        """The header that a key of that scope goes in."""
        return {"Authorization": f"Bearer {self.keys[scope]}"}

    async def post(self, path: str, body: Any, scope: str = "user", **headers: str) -> tuple[int, Any]:
        """Status and JSON of a POST."""
        async with self.session.post(self.url + path, json=body, headers=self.headers(scope) | headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str, scope: str | None = "user") -> tuple[int, Any]:
        """Status and JSON of a GET."""
        headers = self.headers(scope) if scope else {}
        async with self.session.get(self.url + path, headers=headers) as answer:
            return answer.status, await answer.json()


StartFront = Callable[..., Awaitable[Front]]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real, tiny GGUF: the catalogue reads its header."""
    path = tmp_path_factory.mktemp("weights") / "tiny.gguf"
    write_tiny_llama(path)
    return path


@pytest.fixture
async def start_front(tmp_path: Path, tiny_model: Path) -> AsyncIterator[StartFront]:
    """Start a front with a model `tiny`; sections of the settings are given by keyword."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(models: list[dict[str, Any]] | None = None, **sections: Any) -> Front:
            rows = [{"name": "tiny", "aliases": ["gpt-4o"], "path": str(tiny_model), "max_instances": 2}]
            sections["models"] = {"packaged": False} | sections.get("models", {})
            sections["server"] = {"port": 0} | sections.get("server", {})
            sections["flows"] = {"server": "off"} | sections.get("flows", {})
            sections["record"] = {"spool": True} | sections.get("record", {})
            settings = load_settings(home=tmp_path / "home", model=rows if models is None else models, **sections)
            settings.home.mkdir(mode=0o700, exist_ok=True)
            database = open_database(settings.sqlalchemy_url)
            migrate(database)
            keys = {scope: create_key(database, scope, scope) for scope in ("user", "node", "admin")}
            database.close()
            return await _started(stack, settings, keys)

        yield start


async def _started(stack: contextlib.AsyncExitStack, settings: Settings, keys: dict[str, str]) -> Front:
    children = FakeChildren()
    stack.push_async_callback(children.close)
    services = await stack.enter_async_context(open_front(settings, children, TOKEN))
    listener = listen(settings)
    app = App(services)
    stack.push_async_callback(app.aclose)
    config = uvicorn.Config(
        app,
        loop="none",
        http=patient_protocol(settings.server.body_timeout_s),
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(_serve(server, listener))
    stack.push_async_callback(_stop, server, serving)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    port = listener.getsockname()[1]
    return Front(f"http://127.0.0.1:{port}", port, keys, children, services, session, settings)


async def _serve(server: uvicorn.Server, listener: Any) -> None:
    """`Server.serve` without its signal handlers, which are the test run's own."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    await server.main_loop()
    await server.shutdown(sockets=[listener])


async def _stop(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    server.should_exit = True
    await serving
