"""What commands stand on: the install's database, and its running front."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.cli.local import call_front, front_url, install, standard_output, table
from infra.errors import CoderAIError, InvalidRequest
from infra.listen import RUN_FILE
from infra.settings import Settings, load_settings

pytestmark = pytest.mark.enable_socket


def running(settings: Settings, text: str) -> None:
    path = settings.at(*RUN_FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_an_install_is_made_and_migrated(home: Path) -> None:
    with install() as (settings, database):
        assert settings.home == home
        assert database.file == home / "coderai.db"
    with install():
        pass


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"url": "http://127.0.0.1:1"}'])
def test_without_a_front_it_says_how_to_start_one(home: Path, text: str | None) -> None:
    settings = load_settings()
    if text is not None:
        running(settings, text)
    with pytest.raises(InvalidRequest, match=f"no server of {home} is running: start it with `coderai serve`"):
        call_front(settings, "GET", "/x")


def test_a_front_that_is_gone(home: Path, unused_tcp_port: int) -> None:
    settings = load_settings()
    running(settings, json.dumps({"url": f"http://127.0.0.1:{unused_tcp_port}", "token": "t"}))
    with pytest.raises(InvalidRequest, match="is running"):
        call_front(settings, "GET", "/x")


async def asked(answer: web.Response, method: str = "GET", body: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:
    """What `call_front` gives for this answer, and what the front saw of it."""
    seen: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.extend((request.method, request.path, request.headers["Authorization"], await request.text()))
        return answer

    site = web.Application()
    site.router.add_route("*", "/{path:.*}", handle)
    settings = load_settings()
    async with TestServer(site, host="127.0.0.1") as server:
        running(settings, json.dumps({"url": str(server.make_url("")).rstrip("/"), "token": "hush"}))
        return await asyncio.to_thread(call_front, settings, method, "/v1/x", body), seen


async def test_the_owner_asks_with_the_internal_token(home: Path) -> None:
    result, seen = await asked(web.json_response({"a": 1}), "POST", {"b": 2})
    assert result == {"a": 1}
    assert seen == ["POST", "/v1/x", "Bearer hush", '{"b": 2}']


async def test_an_error_has_its_code(home: Path) -> None:
    with pytest.raises(CoderAIError) as caught:
        await asked(web.Response(status=503, text='{"error": {"message": "no room", "code": "no_room"}}'))
    assert caught.value.code == "no_room"


async def test_an_answer_that_is_not_json(home: Path) -> None:
    with pytest.raises(CoderAIError, match="is not JSON"):
        await asked(web.Response(text="<html>"))


def test_where_the_front_is(home: Path) -> None:
    running(load_settings(), '{"url": "http://127.0.0.1:1", "token": "t"}')
    assert front_url(load_settings()) == "http://127.0.0.1:1"


async def test_the_token_goes_through_no_proxy(home: Path) -> None:
    """In a process of its own: proxies of the environment are read once."""
    settings = load_settings()
    app = web.Application()
    app.router.add_get("/v1/x", _seven)
    code = "from api.cli.local import call_front as call, load_settings as load; print(call(load(), 'GET', '/v1/x'))"
    async with TestServer(app, host="127.0.0.1") as server:
        running(settings, json.dumps({"url": str(server.make_url("")).rstrip("/"), "token": "hush"}))
        environment = {"CODERAI_HOME": str(home), "http_proxy": "http://127.0.0.1:9", "PATH": os.defpath}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await asyncio.wait_for(process.communicate(), 30)
    assert said == b"7\n"


async def _seven(_request: web.Request) -> web.Response:
    return web.json_response(7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"error": {"message": "no room", "code": "no_room"}}', "^no room$"),
        ('{"error": "text"}', "HTTP 503"),
        ('{"detail": 1}', "HTTP 503"),
        ("[]", "HTTP 503"),
        ("<html>", "HTTP 503"),
        ("", "HTTP 503"),
    ],
)
async def test_an_error_is_the_front_s_own_sentence(home: Path, text: str, words: str) -> None:
    with pytest.raises(CoderAIError, match=words):
        await asked(web.Response(status=503, text=text))


def test_a_table_that_a_script_reads_is_not_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = table("name", "where")
    lines.add_row("qwen2.5-coder-0.5b-instruct", "/srv/models/qwen2.5-coder-0.5b-instruct.gguf")
    standard_output().print(lines)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "qwen" in line]
    assert "│ qwen2.5-coder-0.5b-instruct │ /srv/models/qwen2.5-coder-0.5b-instruct.gguf │" in line
