"""`coderai pools` against a running front beside a fake of Prefect."""

import json
from collections.abc import AsyncIterator

import pytest

from infra.errors import CoderAIError, InvalidRequest
from tests.api.beside_prefect import Flows, beside_prefect
from tests.api.cli.conftest import Run, beside, owner_of
from tests.api.conftest import StartFront


@pytest.fixture
async def flows(start_front: StartFront, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Flows]:
    monkeypatch.setenv("COLUMNS", "250")
    async with beside_prefect(start_front) as both:
        owner_of(both.front, monkeypatch)
        both.prefect.add_pool("cpu", "cpu")
        yield both


async def said(*words: str) -> str:
    result = await beside("pools", *words)
    if isinstance(result.exception, CoderAIError):
        raise result.exception
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


async def test_list(flows: Flows) -> None:
    flows.prefect.add_pool("lost", "[/red]", is_paused=True, concurrency_limit=3)
    text = await said("list")
    (cpu,) = [line for line in text.splitlines() if line.startswith("│ cpu ")]
    assert all(word in cpu for word in ("coderai-card", "open", "none", "0"))
    (lost,) = [line for line in text.splitlines() if line.startswith("│ lost ")]
    assert all(word in lost for word in ("paused", "3", "[/red]"))
    assert [pool["name"] for pool in json.loads(await said("list", "--json"))] == ["cpu", "lost"]


async def test_pause_resume_and_limit(flows: Flows) -> None:
    pool = flows.prefect.pools["cpu"]
    assert await said("pause", "cpu") == "pool cpu is paused\n"
    assert pool["is_paused"]
    assert await said("limit", "cpu", "2") == "pool cpu is paused, 2 at once\n"
    assert await said("resume", "cpu") == "pool cpu is open, 2 at once\n"
    assert await said("limit", "cpu", "none") == "pool cpu is open\n"
    assert (pool["is_paused"], pool["concurrency_limit"]) == (False, None)


async def test_what_cannot_be(flows: Flows) -> None:
    with pytest.raises(InvalidRequest, match="a number of steps or 'none'"):
        await said("limit", "cpu", "many")
    with pytest.raises(CoderAIError, match="no work pool 'a/b c'"):
        await said("pause", "a/b c")


def test_without_a_server(run: Run) -> None:
    with pytest.raises(InvalidRequest, match="coderai serve"):
        run("pools", "list")
