"""What `coderai doctor` says of the install's processes."""

import pytest

from infra.doctor import Check
from infra.doctor_processes import check_processes
from infra.supervisor.types import ChildState, ChildStatus

SILENT = "killed by SIGKILL after 60 s without a sign of life"


def child(name: str, status: ChildStatus = "running", starts: int = 1, reason: str | None = None) -> ChildState:
    return ChildState(name=name, status=status, incarnation=starts, reason=reason)


def test_all_of_them_run() -> None:
    states = [child("front"), child("prefect"), child("worker"), child("cpu/gone", "stopped", reason="exited")]
    assert check_processes(states) == Check("processes", "ok", "front, prefect, worker")


def test_one_that_came_back_says_how_it_had_ended() -> None:
    found = check_processes([child("front"), child("prefect", starts=2, reason=SILENT)])
    assert found == Check("processes", "ok", f"front, prefect; prefect was started again: {SILENT}")


@pytest.mark.parametrize(
    ("status", "severity", "words"),
    [
        ("backoff", "warning", f"worker has ended and is started again: {SILENT}"),
        ("quarantined", "problem", f"worker was given up: {SILENT}"),
    ],
)
def test_one_that_is_not_there_is_named_alone(status: ChildStatus, severity: str, words: str) -> None:
    check = check_processes(
        [child("front"), child("worker", status, 5, SILENT), child("prefect", starts=3, reason="x")]
    )
    assert (check.status, check.found) == (severity, words)
    assert check.mend


def test_one_that_said_nothing() -> None:
    assert check_processes([child("worker", "quarantined")]).found == "worker was given up: it said nothing"
