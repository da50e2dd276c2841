"""The progress of a run is that of all its parts together."""

import pytest

from flows.progress import Peers, in_words, peers_of, sum_up, usual_of
from infra.records import Attempt, RunRecord, StepRecord
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId
from workers.wire import Working

RUN, DONE = RunId("r"), frozenset({"a"})


def working(step: str, current: int, total: int, phase: str = "denoising", **more: float) -> Working:
    return Working.model_validate(
        {"run": RUN, "step": step, "phase": phase, "current": current, "total": total, "per_s": 2.0, "elapsed_s": 1.0}
        | more
    )


def step(name: str, status: str = "pending", engine: str | None = None, task: str = "draw") -> StepRecord:
    attempts = [Attempt(PoolId("cpu"), EngineId(engine), 1, "", [], 0.0)] if engine else []
    return StepRecord(name, task, (), status, attempts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "peers", "wanted"),
    [
        ([], Peers(0), ("waiting", 0, 0, 0.0)),
        ([working("a", 3, 20)], Peers(1), ("denoising", 3, 20, 15.0)),
        ([working("b", 3, 20)], Peers(4, DONE), ("denoising", 23, 80, 28.8)),
        ([working("a", 3, 20), working("b", 0, 20, "encoding")], Peers(2), ("encoding", 3, 40, 7.5)),
        ([working("a", 3, 20), working("b", 0, 0, "waiting")], Peers(2), ("waiting", 3, 40, 7.5)),
        ([], Peers(4, DONE, 20.0), ("waiting", 20, 80, 25.0)),
        ([], Peers(4, DONE, 20.0, reached=38), ("waiting", 38, 80, 47.5)),
        ([working("b", 3, 20)], Peers(4, DONE, 20.0, reached=38), ("denoising", 23, 80, 28.8)),
        ([working("a", 3, 20, before=2, requests=4)], Peers(1), ("denoising", 43, 80, 53.8)),
    ],
)
def test_what_is_done_of_all(rows: list[Working], peers: Peers, wanted: tuple[str, int, int, float]) -> None:
    found = sum_up(rows, peers, 5.0)
    assert (found.phase, found.current, found.total, found.pct) == wanted
    assert found.it_per_s == 2.0 * len(rows)
    assert [one.step for one in found.steps] == [row.step for row in rows]


def test_the_steps_that_go_to_engines_are_alike() -> None:
    steps = [
        step("split", "completed", task="split"),
        step("part-1", "completed", "cpu/m"),
        step("part-2", "pending", "cpu/m"),
        step("part-3"),
        step("merge", task="merge"),
    ]
    record = RunRecord(RUN, "images", ModelName("m"), KeyName("k"), 0.0, steps)
    assert peers_of(record, 20.0) == (3, frozenset({"part-1"}), 20.0, 0)
    assert usual_of([working("a", 0, 0), working("b", 1, 10), working("c", 1, 20)]) == 15.0


def test_a_step_that_has_its_result_counts_once() -> None:
    """What an engine has said lasts a moment longer than its work."""
    found = sum_up([working("a", 20, 20)], Peers(2, DONE, 20.0, reached=20), 5.0)
    assert (found.phase, found.current, found.total, found.steps) == ("waiting", 20, 40, ())


def test_in_words() -> None:
    assert in_words(sum_up([working("a", 3, 20)], Peers(1), 1.0)) == "denoising: 3 of 20 (15 %), 2.00 it/s"
    assert in_words(sum_up([], Peers(1), 1.0)) == "waiting"
