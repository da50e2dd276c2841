"""Tests of what the child is started with."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from infra.prefect_child.spec import (
    OPTIONS_VARIABLE,
    ChildOptions,
    basic,
    client_environment,
    prefect_auth,
    prefect_spec,
)
from infra.settings import FlowsSettings, Settings

TOKEN = "t" * 43


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, flows=FlowsSettings(keep_days=2, keep_runs=5))


def test_the_password_is_derived_and_no_argument(settings: Settings) -> None:
    spec = prefect_spec(settings, TOKEN)
    password = prefect_auth(TOKEN).removeprefix("coderai:")
    assert len(password) == 64
    assert password not in repr(spec)
    assert spec.secret_env["PREFECT_SERVER_API_AUTH_STRING"] == prefect_auth(TOKEN)
    assert TOKEN not in str(spec.argv) + str(spec.env) + str(spec.secret_env)


def test_another_token_is_another_password() -> None:
    assert prefect_auth(TOKEN) != prefect_auth("u" * 43)


def test_the_header_is_that_of_basic_authentication() -> None:
    assert basic("Aladdin:open sesame") == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="  # RFC 7617


def test_the_port_is_kept_over_restarts(settings: Settings) -> None:
    spec = prefect_spec(settings, TOKEN)
    assert spec.keep_port
    assert spec.argv[-1] == "{port}"


def test_everything_lies_under_the_home(settings: Settings) -> None:
    env = prefect_spec(settings, TOKEN).env
    state = str(settings.home / "prefect")
    assert env["PREFECT_HOME"] == state
    assert env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == f"sqlite+aiosqlite:///{state}/flows.db"
    assert env["PREFECT_SERVER_UI_STATIC_DIRECTORY"].startswith(state)


def test_it_tells_nobody_anything(settings: Settings) -> None:
    env = prefect_spec(settings, TOKEN).env
    assert env["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert env["DO_NOT_TRACK"] == "1"
    assert env["PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT"] == "false"
    assert "*" not in env["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]


def test_a_database_of_one_s_own_is_a_secret(tmp_path: Path) -> None:
    url = "postgresql+asyncpg://me:hunter2-hunter2@db/flows"
    spec = prefect_spec(Settings(home=tmp_path, flows=FlowsSettings(database_url=SecretStr(url))), TOKEN)
    assert spec.secret_env["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == url
    assert "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in spec.env
    assert "hunter2" not in repr(spec)


def test_the_options_are_those_of_the_settings(settings: Settings) -> None:
    options = ChildOptions.model_validate_json(prefect_spec(settings, TOKEN).env[OPTIONS_VARIABLE])
    assert options == ChildOptions(home=settings.home, keep_days=2, keep_runs=5, payloads="all")


def test_a_client_finds_the_api_with_its_password(settings: Settings) -> None:
    env = client_environment("http://127.0.0.1:4242", prefect_auth(TOKEN), settings)
    assert env["PREFECT_API_URL"] == "http://127.0.0.1:4242/flows/api"
    assert env["PREFECT_API_AUTH_STRING"] == prefect_auth(TOKEN)
    assert env["DO_NOT_TRACK"] == "1"
    assert 10 <= float(env["PREFECT_WORKER_QUERY_SECONDS"]) <= 15
