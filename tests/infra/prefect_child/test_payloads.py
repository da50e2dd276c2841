"""What is kept of requests and results, in each of the three modes."""

from pathlib import Path

import pytest

from infra.blobs import Blobs
from infra.errors import InvalidRequest
from infra.prefect_child.payloads import Mode, PayloadKeeper
from infra.records import Payload, RunStatus
from infra.requests import INLINE_BYTES, resolve
from infra.run_files import RunFiles
from infra.types import Json
from tests.infra.prefect_child.spooled import make_run, run_id

REQUEST: dict[str, Json] = {"model": "m", "prompt": "hi"}
LARGE: dict[str, Json] = {"model": "m", "prompt": "x" * INLINE_BYTES}


def keeper(home: Path, mode: Mode) -> PayloadKeeper:
    return PayloadKeeper(mode, Blobs(home / "payloads"), RunFiles(home))


def blobs_in(home: Path) -> int:
    return sum(path.is_file() for path in (home / "payloads").rglob("*"))


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "running"])
def test_all_keeps_small_requests_inline_and_large_ones_as_blobs(tmp_path: Path, status: RunStatus) -> None:
    keep = keeper(tmp_path, "all").keep
    small, large = keep(make_run(1, status, REQUEST)), keep(make_run(2, status, LARGE))
    assert small.parameter == REQUEST
    assert list(large.parameter) == ["$blob"]
    assert resolve(large.parameter, [Blobs(tmp_path / "payloads")]) == LARGE
    assert small.record.payload is None


@pytest.mark.parametrize("status", ["failed", "cancelled", "running"])
def test_failed_keeps_what_did_not_succeed_as_blobs_alone(tmp_path: Path, status: RunStatus) -> None:
    parameter = keeper(tmp_path, "failed").keep(make_run(1, status, REQUEST)).parameter
    assert list(parameter) == ["$blob"]
    assert resolve(parameter, [Blobs(tmp_path / "payloads")]) == REQUEST


def test_failed_keeps_nothing_of_a_run_that_succeeded(tmp_path: Path) -> None:
    keep = keeper(tmp_path, "failed").keep
    for run in (make_run(1, "completed", REQUEST), make_run(2, "completed")):
        assert "succeeded" in str(keep(run).parameter["$gone"])
    assert blobs_in(tmp_path) == 0


def test_failed_lets_the_request_of_a_run_that_lasted_go_when_it_has_succeeded(tmp_path: Path) -> None:
    keep = keeper(tmp_path, "failed").keep
    for _ in range(2):  # a batch that is tried again
        assert list(keep(make_run(1, "running", REQUEST)).parameter) == ["$blob"]
    assert blobs_in(tmp_path) == 1
    keep(make_run(1, "completed"))
    assert blobs_in(tmp_path) == 0


def test_failed_keeps_a_request_that_another_run_has_sent_too(tmp_path: Path) -> None:
    keep = keeper(tmp_path, "failed").keep
    keep(make_run(1, "running", REQUEST))
    keep(make_run(2, "running", REQUEST))
    failed = keep(make_run(2, "failed", REQUEST))
    keep(make_run(1, "completed"))
    keep(make_run(3, "running", REQUEST))
    keep(make_run(3, "completed"))
    assert resolve(failed.parameter, [Blobs(tmp_path / "payloads")]) == REQUEST


@pytest.mark.parametrize("status", ["completed", "failed", "running"])
def test_none_keeps_nothing(tmp_path: Path, status: RunStatus) -> None:
    run = make_run(1, status, REQUEST)
    assert run.payload is not None
    run.payload.steps["split"] = 1
    assert "record.payloads = none" in str(keeper(tmp_path, "none").keep(run).parameter["$gone"])
    assert blobs_in(tmp_path) == 0
    assert RunFiles(tmp_path).steps(run.id) == {}


@pytest.mark.parametrize("mode", ["all", "failed"])
def test_a_payload_that_was_shed_is_said_to_be(tmp_path: Path, mode: Mode) -> None:
    parameter = keeper(tmp_path, mode).keep(make_run(1, "failed")).parameter
    assert "no space left" in str(parameter["$gone"])


def test_a_request_that_is_a_blob_already_stays_one(tmp_path: Path) -> None:
    ref = Blobs(tmp_path / "payloads").put(b'{"model": "m"}')
    assert keeper(tmp_path, "all").keep(make_run(1, "failed", blob=ref)).parameter == {"$blob": ref}
    with pytest.raises(InvalidRequest):
        keeper(tmp_path, "all").keep(make_run(2, "failed", blob="sha256:../../x"))


def test_results_of_steps_are_kept_until_the_run_succeeds(tmp_path: Path) -> None:
    keep, files = keeper(tmp_path, "failed").keep, RunFiles(tmp_path)
    for status in ("running", "failed"):
        run = make_run(1, status, REQUEST)
        assert isinstance(run.payload, Payload)
        run.payload.steps = {"split-0": {"scores": [1.0]}}
        keep(run)
        assert files.steps(run_id(1)) == {"split-0": {"scores": [1.0]}}
    keep(make_run(1, "completed"))
    assert files.steps(run_id(1)) == {}


def test_a_request_that_is_no_object_is_not_kept(tmp_path: Path) -> None:
    for request in (["a"], "text", None):
        run = make_run(1, "failed")
        run.payload = Payload(request)
        assert "cannot be stored" in str(keeper(tmp_path, "all").keep(run).parameter["$gone"])


@pytest.mark.parametrize("step", ["../x", "a/b"])
def test_ids_that_are_none_are_refused(tmp_path: Path, step: str) -> None:
    run = make_run(1, "failed", REQUEST)
    assert run.payload is not None
    run.payload.steps[step] = 1
    with pytest.raises(InvalidRequest):
        keeper(tmp_path, "all").keep(run)
    other = make_run(1, "failed")
    other.id = type(other.id)("../../x")
    with pytest.raises(InvalidRequest):
        keeper(tmp_path, "all").keep(other)
