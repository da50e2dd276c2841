"""What `coderai doctor` says of the recording of runs."""

import time
from pathlib import Path

import pytest

from infra.doctor import Check
from infra.doctor_recorder import check_dropped, check_recorder, check_set_aside
from infra.recorder_status import RecorderStatus, State


def said(state: State, reason: str = "", *, ago_s: float = 1.0, waiting_s: float = 0.0) -> RecorderStatus:
    return RecorderStatus(
        state=state,
        reason=reason,
        recorded=12,
        waiting_segments=3,
        oldest_waiting_s=waiting_s,
        written_at=time.time() - ago_s,
    )


def test_a_recorder_that_records() -> None:
    check = check_recorder(said("recording"), serving=True)
    assert check == Check("recorder", "ok", "12 runs since its start, 3 segments wait")


def test_without_a_server_there_is_none() -> None:
    for status in (None, said("recording"), said("mismatch", ago_s=1e6)):
        assert check_recorder(status, serving=False).status == "ok"


def test_a_recorder_that_never_said_anything() -> None:
    check = check_recorder(None, serving=True)
    assert (check.status, check.found, bool(check.mend)) == ("problem", "it has said nothing", True)


@pytest.mark.parametrize(
    ("state", "reason", "ago_s", "waiting_s", "severity", "words"),
    [
        ("recording", "", 200.5, 0.0, "problem", "has said nothing for 20"),
        ("mismatch", "Prefect 4.0 is installed", 1.0, 0.0, "problem", "Prefect 4.0"),
        ("waiting", "the database is locked", 1.0, 0.0, "warning", "locked; 3 segments wait"),
        ("waiting", "the disk is full", 1.0, 61.0, "problem", "the disk is full"),
        ("recording", "", 1.0, 61.0, "warning", "the oldest for 61 s"),
        ("starting", "", 1.0, 0.0, "warning", "it is starting"),
        ("off", "the Prefect child is stopping", 1.0, 0.0, "warning", "it is off: the Prefect child is stopping"),
    ],
)
def test_what_is_wrong_is_said_with_how_to_mend_it(
    state: State, reason: str, ago_s: float, waiting_s: float, severity: str, words: str
) -> None:
    check = check_recorder(said(state, reason, ago_s=ago_s, waiting_s=waiting_s), serving=True)
    assert (check.name, check.status) == ("recorder", severity)
    assert words in check.found
    assert check.mend


def test_lines_that_were_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "set-aside.jsonl"
    assert check_set_aside(path).status == "ok"
    path.write_bytes(b"{}\n{}\n")
    check = check_set_aside(path)
    assert (check.status, f"2 lines in {path}" in check.found, bool(check.mend)) == ("warning", True, True)
    path.unlink()
    path.mkdir()
    assert check_set_aside(path).status == "warning"


def test_what_a_full_disk_left_out() -> None:
    assert check_dropped(0, 0).status == "ok"
    for details, runs in ((1, 0), (0, 2)):
        check = check_dropped(details, runs)
        assert check.status == "warning"
        assert f"{runs} runs, and the detail of {details} more" in check.found
        assert "spool_max_mib" in check.mend
