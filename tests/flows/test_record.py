"""The record of a run: where each step was tried, what it used, how it ended."""

import asyncio
from dataclasses import dataclass

import pytest

from flows.plan import Plan, Step, StepId, TaskName
from flows.record import RunRecorder, describe
from infra.errors import EngineFailed, RunCancelled
from infra.records import Payload
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId
from tasks.types import TaskResult, Usage
from tests.fakes import make_entry
from workers.live import Engine, Lease
from workers.types import PassedOver, Placement

SCORE = Step(StepId("score"), TaskName("score"))
RANK = Step(StepId("rank"), TaskName("rank"), refs={"scored": SCORE.id})
PLAN = Plan("rerank", ModelName("m"), (SCORE, RANK))


@dataclass
class Time:
    """A clock that ticks one second a look."""

    now_s: float = 100.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


def recorder() -> RunRecorder:
    return RunRecorder(RunId("r"), PLAN, KeyName("ann"), None, Time())


def lease(pool: str = "cpu", waited_s: float = 0.0) -> Lease:
    engine = Engine(EngineId(f"{pool}/m"), make_entry(), PoolId(pool), True, 1, incarnation=3)
    passed_over = (PassedOver("vulkan-0", "too small"),)
    placement = Placement("use", engine.pool, engine.id, "a free slot", passed_over)
    return Lease(engine, 3, 0, placement, waited_s, 0.0, lambda _lease: None)


def test_a_run_that_went_well() -> None:
    kept = recorder()
    kept.placed(SCORE, lease(waited_s=0.4))
    kept.finished(SCORE, TaskResult({}, Usage(7, 2, 5)))
    kept.placed(RANK, None)
    kept.finished(RANK, TaskResult(b"{}"))
    record = kept.close(None, 0.25)
    assert (record.id, record.flow, record.model, record.key, record.status) == ("r", "rerank", "m", "ann", "completed")
    assert (record.started_at, record.ended_at) == (101.0, 106.0)
    assert (record.queue_wait_s, record.first_token_s) == (0.4, 0.25)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 2, 5)
    score, rank = record.steps
    (attempt,) = score.attempts
    assert (attempt.pool, attempt.engine, attempt.incarnation, attempt.reason) == ("cpu", "cpu/m", 3, "a free slot")
    assert attempt.passed_over == [("vulkan-0", "too small")]
    assert (attempt.started_at, attempt.ended_at, attempt.error) == (102.0, 103.0, None)
    assert (rank.parents, rank.status, rank.attempts[0].engine) == (("score",), "completed", None)
    assert kept.engine == "cpu/m"


def test_tokens_add_up_over_the_steps_and_are_none_where_nobody_counted() -> None:
    silent, kept = recorder(), recorder()
    silent.placed(SCORE, lease())
    silent.finished(SCORE, TaskResult({}))
    assert silent.close(None, None).prompt_tokens is None
    for step in (SCORE, RANK):
        kept.placed(step, lease())
        kept.finished(step, TaskResult({}, Usage(3, 1)))
    record = kept.close(None, None)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (6, 2, 0)


def test_a_step_that_was_tried_again_keeps_both_tries_and_the_first_wait() -> None:
    kept = recorder()
    kept.placed(SCORE, lease("cpu", waited_s=0.1))
    kept.failed(SCORE, EngineFailed("cpu/m broke off"), final=False)
    kept.placed(SCORE, lease("cuda-1", waited_s=9.0))
    kept.finished(SCORE, TaskResult({}))
    record = kept.close(None, None)
    first, second = record.steps[0].attempts
    assert (first.error, second.error) == ("cpu/m broke off", None)
    assert (record.steps[0].status, record.queue_wait_s, kept.engine) == ("completed", 0.1, "cuda-1/m")


def test_a_part_that_ran_twice_has_both_tries_and_the_winner_s_result() -> None:
    late, spare, kept = lease("cpu"), lease("cuda-1"), recorder()
    kept.placed(SCORE, late)
    kept.placed(SCORE, spare)
    kept.finished(SCORE, TaskResult({}), spare)
    kept.failed(SCORE, asyncio.CancelledError(), late, final=True)
    step = kept.close(None, None).steps[0]
    assert step.status == "completed"
    assert [(attempt.engine, attempt.error) for attempt in step.attempts] == [
        ("cpu/m", "cancelled"),
        ("cuda-1/m", None),
    ]
    assert all(attempt.ended_at for attempt in step.attempts)


def test_a_part_s_result_is_kept_only_of_a_run_that_failed_and_only_so_much_of_them() -> None:
    parts = [Step(StepId(f"part-{number}"), TaskName("embed_part"), items=8) for number in (1, 2, 3)]
    plan = Plan("embeddings", ModelName("m"), tuple(parts))

    def ran() -> RunRecorder:
        made = RunRecorder(RunId("r"), plan, KeyName("ann"), Payload({}), Time())
        for step, size in zip(parts, (1, 2**22, 1), strict=True):
            made.placed(step, lease())
            made.finished(step, TaskResult({"packed": "x" * size, "texts": ["y"]}))
        return made

    failed, completed = ran().close(EngineFailed("no"), None).payload, ran().close(None, None).payload
    assert failed is not None
    assert list(failed.steps) == ["part-1"]
    assert completed == Payload({})


def test_a_failed_run_says_why_and_cancels_what_never_ran() -> None:
    kept = recorder()
    error = EngineFailed("cpu/m broke off")
    kept.placed(SCORE, lease())
    kept.failed(SCORE, error, final=True)
    record = kept.close(error, None)
    assert (record.status, record.error) == ("failed", "cpu/m broke off")
    assert [step.status for step in record.steps] == ["failed", "cancelled"]


def test_a_client_that_left_is_no_failure() -> None:
    kept = recorder()
    gone = asyncio.CancelledError()
    kept.placed(SCORE, lease())
    kept.failed(SCORE, gone, final=True)
    record = kept.close(gone, None)
    assert (record.status, record.error) == ("cancelled", "cancelled: the client left")
    assert [step.status for step in record.steps] == ["cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (EngineFailed("it died"), "it died"),
        (KeyError("a prompt of somebody"), "KeyError"),
        (asyncio.CancelledError("x"), "cancelled"),
    ],
)
def test_a_foreign_error_s_text_is_kept_nowhere(error: BaseException, words: str) -> None:
    assert describe(error) == words


def test_results_that_another_try_would_need_are_kept_with_the_payload() -> None:
    kept = RunRecorder(RunId("r"), PLAN, KeyName("ann"), Payload({"query": "q"}), Time())
    assert kept.record.status == "running"
    kept.placed(SCORE, lease())
    kept.finished(SCORE, TaskResult({"scores": [1]}))
    kept.placed(RANK, None)
    kept.finished(RANK, TaskResult(b"{}"))
    payload = kept.close(None, None).payload
    assert payload == Payload({"query": "q"}, None, {"score": {"scores": [1]}})


def test_a_cancellation_says_who_asked_for_it() -> None:
    kept = recorder()
    kept.placed(SCORE, lease())
    kept.failed(SCORE, asyncio.CancelledError(), final=True)
    record = kept.close(RunCancelled("cancelled by an operator"), None)
    assert (record.status, record.error) == ("cancelled", "cancelled by an operator")
    assert [step.status for step in record.steps] == ["cancelled", "cancelled"]
