"""What `coderai serve` prepares and says. (That it serves is tested in tests/system.)"""

import asyncio
import sys
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.cli.serve import first_key, front_spec, greet_when_ready, greeting, prepare_database, prepare_models
from infra.database import open_database
from infra.errors import CoderAIError
from infra.listen import RUN_FILE
from infra.settings import INTERNAL_TOKEN_VARIABLE, Settings, load_settings
from infra.tokens import TokenTable
from tests.api.cli.conftest import Run

pytestmark = pytest.mark.enable_socket

URL = "http://127.0.0.1:8776/v1"


@pytest.fixture
def settings(home: Path) -> Settings:
    home.mkdir(mode=0o700)
    return load_settings()


def test_the_first_key_is_made_once_and_opens(settings: Settings) -> None:
    prepare_database(settings)
    key = first_key(settings)
    assert key is not None
    prepare_database(settings)
    assert first_key(settings) is None
    database = open_database(settings.sqlalchemy_url)
    table = TokenTable(database)
    table.refresh()
    found = table.find(key)
    database.close()
    assert found is not None
    assert (found.name, found.scope) == ("first", "admin")


def test_who_has_made_a_key_gets_no_first_one(settings: Settings, run: Run) -> None:
    run("tokens", "create", "ann", "--scope", "admin")
    assert first_key(settings) is None


def test_a_damaged_database_is_named(settings: Settings) -> None:
    (settings.home / "coderai.db").write_bytes(b"no database" * 1000)
    with pytest.raises(CoderAIError, match=r"coderai\.db"):
        prepare_database(settings)


def test_the_greeting_of_the_first_start_has_the_key_and_of_the_next_says_how_to_make_one(settings: Settings) -> None:
    first = greeting(settings, URL, "sk-coderai-x")
    assert first[0] == f"CoderAI serves on {URL}"
    assert "API key (admin, shown this once): sk-coderai-x" in first
    later = greeting(settings, URL, None)
    assert any("coderai tokens create NAME" in line for line in later)
    assert not any("sk-coderai" in line for line in later)
    assert not any("curl" in line for line in later)  # no packaged model, no example


def test_the_greeting_s_example_works_in_a_shell(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODERAI_MODELS__PACKAGED", "true")
    lines = greeting(load_settings(), URL, None)
    curls = [line for line in lines if "curl" in line]
    if not curls:
        pytest.skip("no packaged chat model is installed here")
    assert "$OPENAI_API_KEY" in curls[0]
    assert f"{URL}/chat/completions" in curls[0]
    assert curls[0].count("'") % 2 == 0


async def test_the_greeting_waits_until_it_serves(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[int] = []

    async def health(_request: web.Request) -> web.Response:
        asked.append(503 if len(asked) < 2 else 200)
        return web.Response(status=asked[-1])

    app = web.Application()
    app.router.add_get("/healthz", health)
    async with TestServer(app, host="127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.port}"
        run_file = settings.at(*RUN_FILE)
        run_file.parent.mkdir()
        run_file.write_bytes(orjson.dumps({"url": url, "token": "of a front that is long gone"}))
        greeter = asyncio.create_task(greet_when_ready(settings, "sk-coderai-x"))
        await asyncio.sleep(0.15)
        assert asked == []
        token = front_spec(settings).secret_env[INTERNAL_TOKEN_VARIABLE]
        run_file.write_bytes(orjson.dumps({"url": url, "token": token}))
        async with asyncio.timeout(10):
            await greeter
    assert asked == [503, 503, 200]
    said = capsys.readouterr()
    assert said.out == ""
    assert f"CoderAI serves on {url}/v1" in said.err
    assert "sk-coderai-x" in said.err


def test_the_front_gets_the_token_where_nobody_sees_it(settings: Settings) -> None:
    spec = front_spec(settings)
    token = spec.secret_env[INTERNAL_TOKEN_VARIABLE]
    assert len(token) == 64
    assert token not in repr(spec)
    assert token not in " ".join(spec.argv)
    assert token not in str(spec.env)
    assert spec.argv == (sys.executable, "-m", "api.front")
    assert spec.env["CODERAI_HOME"] == str(settings.home)
    assert spec.stop_grace_s > settings.server.drain_s
    assert front_spec(settings).secret_env[INTERNAL_TOKEN_VARIABLE] == token  # a restarted front knows its engines


def test_what_the_command_line_chose_reaches_the_front(settings: Settings) -> None:
    chosen = settings.model_copy(
        update={"server": settings.server.model_copy(update={"host": "0.0.0.0", "port": 9000})}
    )
    spec = front_spec(chosen)
    assert (spec.env["CODERAI_SERVER__HOST"], spec.env["CODERAI_SERVER__PORT"]) == ("0.0.0.0", "9000")


async def test_without_packaged_models_nothing_is_prepared(settings: Settings) -> None:
    await prepare_models(settings)
    assert list(settings.home.iterdir()) == []
