"""The front's process: started in the wrong way, where its owner finds it, what it does on a signal."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.front import _reachable
from infra.database import open_database
from infra.files import make_private_folder
from infra.listen import RUN_FILE
from infra.migrate import migrate
from infra.settings import INTERNAL_TOKEN_VARIABLE, LINK_FD_VARIABLE
from infra.supervisor.link import LinkServer
from infra.supervisor.types import EX_CONFIG
from infra.usage import list_usage
from tests.fakes import FakeChildren

pytestmark = pytest.mark.enable_socket


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]"), ("10.1.2.3", "10.1.2.3"), ("box", "box")],
)
def test_where_the_owner_s_command_line_finds_it(host: str, url: str) -> None:
    assert _reachable(host) == url


def test_by_hand_it_says_how_it_is_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api.front"],
        env={"PATH": os.defpath, "CODERAI_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == EX_CONFIG
    assert done.stderr == "error: the front is started by `coderai serve`, not by hand\n"
    assert not tmp_path.joinpath(*RUN_FILE).exists()


def prepared(home: Path, service: str = "http://127.0.0.1:9") -> Path:
    """A home with one far model, `far`."""
    make_private_folder(home / "run")
    row = f'[[model]]\nname = "far"\nservice_url = "{service}"\n'
    off = '[flows]\nserver = "off"\n[record]\nspool = true\n'
    (home / "coderai.toml").write_text(f"[server]\nport = 0\n[models]\npackaged = false\n{off}{row}")
    database = open_database(f"sqlite:///{home / 'coderai.db'}")
    migrate(database)
    database.close()
    return home


@contextlib.asynccontextmanager
async def running(home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real front process, its link served."""
    ours, theirs = socket.socketpair()
    children = FakeChildren()
    link = asyncio.create_task(LinkServer(children).serve(ours))
    handed = {LINK_FD_VARIABLE: str(theirs.fileno()), INTERNAL_TOKEN_VARIABLE: "internal"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "api.front"),
        env={"PATH": os.defpath, "CODERAI_HOME": str(home), **handed},
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await link
        await children.close()


async def url_of(home: Path) -> str:
    """Where it serves, once it does."""
    async with asyncio.timeout(20):
        while not home.joinpath(*RUN_FILE).exists():
            await asyncio.sleep(0.05)
    return str(json.loads(home.joinpath(*RUN_FILE).read_bytes())["url"])


async def test_a_database_that_does_not_answer_now_may_at_another_try(tmp_path: Path) -> None:
    home = prepared(tmp_path / "home")
    (home / "coderai.db").write_bytes(b"no database" * 1000)
    async with running(home) as process:
        assert await asyncio.wait_for(process.wait(), 20) == 1


async def test_settings_that_cannot_be_used_need_the_operator(tmp_path: Path) -> None:
    home = prepared(tmp_path / "home", service="no-url")
    async with running(home) as process:
        assert await asyncio.wait_for(process.wait(), 20) == EX_CONFIG


async def test_a_signal_lets_requests_finish_and_what_was_used_reach_the_database(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        asked.set()
        await go_on.wait()
        used = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        return web.json_response({"choices": [], "usage": used})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)

    async def ask(session: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
        body = {"model": "far", "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"Authorization": "Bearer internal"}
        async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as got:
            return got.status, await got.json()

    async with TestServer(app) as service, aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        home = prepared(tmp_path / "home", str(service.make_url("/")))
        process = await stack.enter_async_context(running(home))
        url = await url_of(home)
        asking = asyncio.create_task(ask(session, url))
        await asyncio.wait_for(asked.wait(), 20)
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert process.returncode is None
        go_on.set()
        assert (await asking)[0] == 200
        assert await asyncio.wait_for(process.wait(), 20) == 0
    database = open_database(f"sqlite:///{home / 'coderai.db'}")
    (row,) = list_usage(database, first_day=(today := datetime.now(UTC).date()), last_day=today)
    database.close()
    assert (row.requests, row.prompt_tokens, row.completion_tokens) == (1, 3, 4)
    assert [path.suffix for path in (home / "spool").iterdir()] == [".seg"]


@pytest.mark.slow
async def test_an_idle_connection_is_left_to_its_client_to_close(tmp_path: Path) -> None:
    home = prepared(tmp_path / "home")
    async with running(home):
        address = (await url_of(home)).removeprefix("http://")
        reader, writer = await asyncio.open_connection(*address.split(":"))
        for idle_s in (0, 6):
            await asyncio.sleep(idle_s)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            while (await reader.readline()).strip():
                pass
            await reader.read(4096)
        writer.close()
