"""Files of a run: results of steps and the answer, under ids that cannot leave their folder."""

import os
import stat
import time
from pathlib import Path

import pytest

from infra.errors import DiskFull, InvalidRequest
from infra.run_files import RunFiles, require_run_id
from infra.types import Json
from tests.infra.disks import small_disk

__all__ = ["small_disk"]

RUN = "11111111-2222-4333-8444-555555555555"
OTHER = "aaaaaaaa-2222-4333-8444-555555555555"


def test_results_of_steps_come_back_and_the_last_one_counts(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    assert files.steps(RUN) == {}
    files.keep_step(RUN, "split-0", {"a": [1, None, "ü"]})
    files.keep_step(RUN, "merge", "first")
    files.keep_step(RUN, "merge", None)
    assert RunFiles(tmp_path).steps(RUN) == {"split-0": {"a": [1, None, "ü"]}, "merge": None}
    assert files.steps(OTHER) == {}
    paths = list((tmp_path / "runs").rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}


@pytest.mark.parametrize("run", ["", "..", "../../x", "run-1", RUN.upper().replace("1", "A"), RUN + "\n", RUN + "/x"])
def test_only_a_uuid_is_a_run(tmp_path: Path, run: str) -> None:
    files = RunFiles(tmp_path)
    for call in (files.steps, files.answer, files.forget, files.forget_steps, require_run_id):
        with pytest.raises(InvalidRequest):
            call(run)
    with pytest.raises(InvalidRequest):
        files.keep_step(run, "a", 1)
    with pytest.raises(InvalidRequest):
        files.keep_answer(run, b"", "text/plain")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("step", ["", ".", "..", "../answer", "a/b", ".hidden", "a\n", "a" * 101, "ä"])
def test_only_a_plain_name_is_a_step(tmp_path: Path, step: str) -> None:
    with pytest.raises(InvalidRequest):
        RunFiles(tmp_path).keep_step(RUN, step, 1)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_result_that_is_no_json_is_refused(tmp_path: Path) -> None:
    value: Json = {"bytes": b"x"}  # type: ignore[dict-item]
    with pytest.raises(InvalidRequest, match="no JSON"):
        RunFiles(tmp_path).keep_step(RUN, "a", value)


def test_damaged_and_foreign_files_are_no_results(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.keep_step(RUN, "good", 1)
    folder = tmp_path / "runs" / RUN / "steps"
    (folder / "torn.json").write_bytes(b'{"a":')
    (folder / "empty.json").write_bytes(b"")
    (folder / "zeros.json").write_bytes(bytes(10))
    (folder / ".good.json.ab.tmp").write_bytes(b"1")
    (folder / "link.json").symlink_to(folder / "good.json")
    assert files.steps(RUN) == {"good": 1}


def test_forgetting_steps_leaves_the_answer(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.keep_step(RUN, "a", 1)
    files.keep_answer(RUN, b"x", "text/plain")
    files.forget_steps(RUN)
    files.forget_steps(RUN)
    assert (files.steps(RUN), files.answer(RUN)) == ({}, (b"x", "text/plain"))
    files.forget(RUN)
    files.forget(RUN)
    assert files.answer(RUN) is None


def test_an_answer_comes_back_with_its_media_type(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    assert files.answer(RUN) is None
    body = b'{"line": 1}\n\n\x00\xff' + os.urandom(100)
    files.keep_answer(RUN, b"older", "text/plain")
    files.keep_answer(RUN, body, "application/json")
    assert files.answer(RUN) == (body, "application/json")


def test_a_damaged_answer_is_none(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.keep_answer(RUN, b"0123456789", "text/plain")
    path = tmp_path / "runs" / RUN / "answer"
    whole = path.read_bytes()
    for damage in (whole[:-1], b"", bytes(len(whole)), b'{"media_type": 1}\n0123456789'):
        path.write_bytes(damage)
        assert files.answer(RUN) is None


def test_files_of_old_runs_go_together(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    for run in (RUN, OTHER):
        files.keep_step(run, "a", 1)
        files.keep_answer(run, b"x", "text/plain")
    then = time.time() - 100
    for folder in (tmp_path / "runs" / RUN, tmp_path / "runs" / RUN / "steps", tmp_path / "runs" / OTHER):
        os.utime(folder, (then, then))  # the other run's last step is new
    (tmp_path / "runs" / "not-a-run").mkdir()
    os.utime(tmp_path / "runs" / "not-a-run", (then, then))
    assert files.prune(50) == 1
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [OTHER, "not-a-run"]


def test_a_full_disk_leaves_what_was_kept(small_disk: Path) -> None:
    files = RunFiles(small_disk)
    files.keep_answer(RUN, b"first", "text/plain")
    files.keep_step(RUN, "a", 1)
    with pytest.raises(DiskFull):
        files.keep_answer(RUN, bytes(2 << 20), "text/plain")
    with pytest.raises(DiskFull):
        files.keep_step(RUN, "a", "x" * (2 << 20))
    assert (files.answer(RUN), files.steps(RUN)) == ((b"first", "text/plain"), {"a": 1})
