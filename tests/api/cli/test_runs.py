"""`coderai runs` against a running front beside a fake of Prefect."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from infra.errors import CoderAIError, InvalidRequest
from infra.run_files import RunFiles
from tests.api.beside_prefect import CHAT, Flows, beside_prefect
from tests.api.cli.conftest import Run, beside, owner_of
from tests.api.conftest import StartFront


@pytest.fixture
async def flows(start_front: StartFront, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Flows]:
    monkeypatch.setenv("COLUMNS", "250")
    async with beside_prefect(start_front) as both:
        owner_of(both.front, monkeypatch)
        yield both


async def said(*words: str, code: int = 0) -> str:
    """What the command printed."""
    result = await beside("runs", *words)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


async def refusal(*words: str) -> CoderAIError:
    result = await beside("runs", *words)
    assert isinstance(result.exception, CoderAIError), result.output
    return result.exception


async def test_list(flows: Flows) -> None:
    row = flows.prefect.add_run("chat", "FAILED", key="ann", message="no [/red] room")
    flows.prefect.add_run("rerank", model="other")
    text = await said("list")
    (line,) = [line for line in text.splitlines() if row["id"][:8] in line]
    assert all(word in line for word in ("failed", "chat", "tiny", "ann", "interactive", "1.50", "no [/red] room"))
    assert len(json.loads(await said("list", "--json"))) == 2
    for filters in (("--status", "failed"), ("--model", "tiny"), ("--key", "ann"), ("--limit", "1", "--key", "ann")):
        (run,) = json.loads(await said("list", "--json", *filters))
        assert run["id"] == row["id"]
    assert "status" in (await refusal("list", "--status", "done")).message


async def test_a_long_list_takes_several_pages(flows: Flows) -> None:
    for number in range(130):
        flows.prefect.add_run(ago_s=float(number))
    for limit in (120, 130, 200):
        assert len({run["id"] for run in json.loads(await said("list", "--json", "--limit", str(limit)))}) == min(
            limit, 130
        )


async def test_show(flows: Flows) -> None:
    row = flows.prefect.add_run("rerank")
    flows.prefect.add_task(row, "scores")
    RunFiles(flows.front.settings.home).keep_answer(row["id"], b'{"a": 1}', "application/json")
    text = await said("show", row["id"])
    assert row["id"] in text
    assert f"{flows.front.url}/flows/runs/flow-run/{row['id']}" in text
    assert "scores" in text
    assert json.loads(await said("show", row["id"], "--json"))["answer"] == {"a": 1}
    assert await said("show", row["id"], "--answer") == '{"a": 1}'


async def test_an_answer_that_is_not_kept(flows: Flows) -> None:
    row = flows.prefect.add_run()
    assert "no answer" in (await refusal("show", row["id"], "--answer")).message


async def test_the_beginning_of_an_id_names_a_run(flows: Flows) -> None:
    ids = [f"abcdef{number}0-0000-4000-8000-000000000000" for number in (1, 2)]
    for run in ids:
        flows.prefect.add_run(id=run)
    assert json.loads(await said("show", "ABCDEF1", "--json"))["id"] == ids[0]
    several = (await refusal("show", "abcdef")).message
    assert all(run in several for run in ids)
    assert "too short" in (await refusal("show", "abcde")).message
    assert "whole id" in (await refusal("show", "123456")).message
    assert "no run" in (await refusal("show", "00000000-0000-4000-8000-000000000000")).message


async def test_retry_and_cancel(flows: Flows) -> None:
    row = flows.prefect.add_run("chat", "FAILED", parameters={"request": CHAT})
    assert await said("retry", row["id"][:8]) == f"run {row['id']} is queued\n"
    assert row["state"]["name"] == "AwaitingRetry"
    assert json.loads(await said("cancel", row["id"], "--json"))["status"] == "cancelled"
    assert "over" in (await refusal("cancel", row["id"])).message


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("FAILED", 1), ("CANCELLED", 1)])
async def test_watch_ends_with_the_run(flows: Flows, state: str, code: int) -> None:
    row = flows.prefect.add_run("chat", "RUNNING")
    watching = asyncio.create_task(said("watch", row["id"], code=code))
    path = ("POST", "/task_runs/filter")
    while path not in flows.prefect.seen:
        await asyncio.sleep(0.01)
    row["state"] = row["state"] | {"type": state}
    lines = (await watching).splitlines()
    assert [line.split()[:2] for line in lines] == [[row["id"], "running"], [row["id"], state.lower()]]


async def test_watch_as_json(flows: Flows) -> None:
    row = flows.prefect.add_run()
    (line,) = (await said("watch", row["id"], "--json")).splitlines()
    assert json.loads(line)["status"] == "completed"


async def test_watch_waits_while_prefect_is_restarted(flows: Flows) -> None:
    row = flows.prefect.add_run()
    flows.prefect.broken = b""
    watching = asyncio.create_task(said("watch", row["id"]))
    while not flows.prefect.seen:
        await asyncio.sleep(0.01)
    flows.prefect.broken = None
    assert "completed" in await watching


@pytest.mark.parametrize(("words", "code"), [((), 0), (("RUN",), 130)])
async def test_ctrl_c_is_quiet(flows: Flows, words: tuple[str, ...], code: int) -> None:
    row = flows.prefect.add_run("chat", "RUNNING")
    words = tuple(row["id"] for _ in words)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "api.cli.main", "runs", "watch", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
    )
    assert process.stdout is not None
    assert row["id"].encode() in await asyncio.wait_for(process.stdout.readline(), 60)
    process.send_signal(signal.SIGINT)
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, errors) == (code, b"")


async def test_what_is_missing_is_said(flows: Flows) -> None:
    flows.use(None)
    assert await said("list", "--json") == "[]\n"
    result: Any = await beside("runs", "list")
    assert result.exit_code == 0


async def test_a_list_while_prefect_is_down_says_so(flows: Flows) -> None:
    flows.prefect.broken = b""
    result = await beside("runs", "list")
    assert result.exit_code == 0
    assert "not available" in result.stderr


def test_without_a_server(run: Run) -> None:
    with pytest.raises(InvalidRequest, match="coderai serve"):
        run("runs", "list")


def test_the_help_teaches(run: Run) -> None:
    text = run("runs", "--help")
    assert all(word in text for word in ("list", "show", "watch", "retry", "cancel", "X-Coderai-Run"))
    assert "exit code" in run("runs", "watch", "--help")


async def test_what_is_no_id_is_not_asked_for(flows: Flows) -> None:
    for part in ("../../v1/pools", "z" * 40, "0" * 40, ""):
        assert "is no run's id" in (await refusal("show", "--", part)).message
