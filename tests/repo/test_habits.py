"""The twenty habits of this code base, each with the place where `make lint` checks it.

 1  imports go one way: api, flows, tasks, workers, infra       import-linter; ruff PLC0415 (no import in a function)
 2  a noun lives in the lowest layer that needs it; HTTP is the edge's       import-linter (layers, framework)
 3  a request becomes a plan that is JSON                       test_recordings.py; test_habits.py (planners' tests)
 4  decide purely, act at the edge                              import-linter (pure planning and placing)
 5  a state machine is literal states and a table               tests/infra/supervisor, over every state and event
 6  one frozen base that forbids extras; `match` is exhaustive  test_code.py; mypy exhaustive-match
 7  ids are NewTypes                                            test_code.py; mypy strict
 8  units in the name                                           test_code.py
 9  boundaries are protocols of at most five methods            test_code.py
10  a new kind of worker is one file and its test               test_layout.py (a test beside every module); review
11  an HTTP client knows JSON, an adapter knows our nouns       ruff TID251 (no mocks, so a real socket proves it)
12  collaborators are passed in; no singletons, no `global`     ruff PLW0603
13  one error tree, mapped to HTTP once                         test_code.py; ruff BLE001, TRY, B904
14  settings are read once, every field documented              ruff TID251; test_habits.py (this file)
15  small files and functions                                   test_code.py; ruff C901, PLR0913, PLR0915
16  strict types over code and tests, every ignore has a code   mypy strict; test_code.py; ruff PGH
17  warnings are errors, no sockets beyond loopback, xfail is strict       pytest's configuration
18  tests mirror modules; fakes, no mocks                       test_layout.py; ruff TID251
19  recorded plans are replayed                                 test_recordings.py
20  say why once; documents are tested                          test_docs.py; ruff ERA (no dead code), D

This file asserts that the tools named above are still switched on.
"""

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from infra.settings import Section, Settings
from tests.repo.tree import modules, read

CONFIGURATION: dict[str, Any] = tomllib.loads(read("pyproject.toml"))["tool"]

RULES = ("PLC0415", "PLW", "BLE", "TRY", "B", "C90", "PLR0913", "PLR0915", "PGH", "TID", "ERA", "D100", "D101", "D103")
BANNED = ("os.environ", "os.getenv", "unittest.mock", "pickle")


@pytest.mark.parametrize("rule", RULES)
def test_ruff_checks(rule: str) -> None:
    lint = CONFIGURATION["ruff"]["lint"]
    assert rule in lint["select"]
    assert rule not in lint["ignore"]


def test_ruff_bans_what_goes_round_a_boundary() -> None:
    banned = CONFIGURATION["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert set(banned) >= set(BANNED)
    assert not any("TID" in codes for codes in CONFIGURATION["ruff"]["lint"]["per-file-ignores"].values())


def test_ruff_keeps_things_small() -> None:
    lint = CONFIGURATION["ruff"]["lint"]
    assert lint["mccabe"]["max-complexity"] <= 8
    assert lint["pylint"]["max-args"] <= 6
    assert lint["pylint"]["max-statements"] <= 40


def test_import_contracts_stand() -> None:
    contracts = CONFIGURATION["importlinter"]["contracts"]
    assert next(c["layers"] for c in contracts if c["type"] == "layers") == [
        "api",
        "flows",
        "tasks",
        "workers",
        "infra",
    ]
    forbidden = [set(c["forbidden_modules"]) for c in contracts if c["type"] == "forbidden"]
    assert any(each >= {"fastapi", "starlette", "uvicorn"} for each in forbidden)
    assert any(each >= {"asyncio", "aiohttp", "subprocess", "time"} for each in forbidden)


def test_mypy_is_strict_over_code_and_tests() -> None:
    mypy = CONFIGURATION["mypy"]
    assert mypy["strict"] is True
    assert set(mypy["files"]) >= {"api", "flows", "tasks", "workers", "infra", "docs", "tests", "benchmarks"}
    assert set(mypy["enable_error_code"]) >= {"exhaustive-match", "ignore-without-code"}


def test_pytest_forgives_nothing() -> None:
    options = CONFIGURATION["pytest"]["ini_options"]
    assert options["filterwarnings"][0] == "error"
    assert options["xfail_strict"] is True
    assert "--disable-socket --allow-hosts=127.0.0.1,::1,localhost" in options["addopts"]


def test_every_setting_is_documented() -> None:
    mute = [name for name, description in _settings(Settings) if not description]
    assert not mute, "\n".join(mute)


def test_every_planner_reads_its_plans_back() -> None:
    """A module of `flows` that builds plans has a test that sends one through JSON."""
    planners = [module.path for module in modules("flows") if "-> Plan:" in module.text]
    tests = {module.path: module.text for module in modules("tests")}
    silent = [path for path in planners if "from_json" not in tests.get(f"tests/flows/test_{path.split('/')[-1]}", "")]
    assert not silent, "\n".join(silent)


def _settings(model: type[BaseModel]) -> Iterator[tuple[str, str | None]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _settings(kind)
        else:
            yield f"{model.__name__}.{name}", field.description
