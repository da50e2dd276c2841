"""What may be wrong with the recording of runs: the recorder's state, what it set aside, what a full disk left out."""

from pathlib import Path
from typing import Final

from infra.doctor import Check
from infra.recorder_status import STALE_S, RecorderStatus

BEHIND_S: Final = 60.0
"""How long a run may wait in the spool before it is worth a word."""

_IN_THE_SPOOL: Final = "until then runs wait in the spool"


def check_recorder(status: RecorderStatus | None, serving: bool) -> Check:
    """Whether the recorder lives and keeps up. `status` is what it said last, `serving` whether the front runs."""
    if not serving:
        return Check("recorder", "ok", "it runs with `coderai serve`")
    if status is None or status.silent_s() > STALE_S:
        since = "" if status is None else f" for {status.silent_s():.0f} s"
        mend = "wait if it has just been started, else look for `prefect` in the log of `coderai serve` and restart it"
        return Check("recorder", "problem", f"it has said nothing{since}", f"{mend}; {_IN_THE_SPOOL}")
    match status.state:
        case "recording":
            return _recording(status)
        case "waiting":
            return _waiting(status)
        case "mismatch":
            mend = f"install again, which brings the version that is needed: make serve; {_IN_THE_SPOOL}"
            return Check("recorder", "problem", status.reason, mend)
        case "starting" | "off":
            found = f"it is {status.state}: {status.reason}" if status.reason else f"it is {status.state}"
            return Check("recorder", "warning", found, f"wait a minute and look again; {_IN_THE_SPOOL}")


def check_set_aside(path: Path) -> Check:
    """Lines of the spool that could not be recorded. `path` is the file that holds them."""
    try:
        with path.open("rb") as file:
            count = sum(1 for _ in file)
    except FileNotFoundError:
        return Check("set aside", "ok", "every line of the spool could be read")
    except OSError as error:
        return Check("set aside", "warning", f"{path} cannot be read: {error.strerror}", f"make {path} readable")
    mend = "each line says why; remove the file when you have seen it"
    return Check("set aside", "warning", f"{count} lines in {path} could not be recorded", mend)


def check_dropped(details: int, runs: int) -> Check:
    """What a full spool or disk has left out since the front's start."""
    if not details and not runs:
        return Check("dropped", "ok", "nothing was left out since the start")
    found = f"{runs} runs, and the detail of {details} more, were left out since the start"
    return Check("dropped", "warning", found, "free some space, or raise record.spool_max_mib")


def _recording(status: RecorderStatus) -> Check:
    found = f"{status.recorded} runs since its start, {status.waiting_segments} segments wait"
    if status.oldest_waiting_s > BEHIND_S:
        mend = "more runs end than are recorded: give it time, or a PostgreSQL with flows.database_url"
        return Check("recorder", "warning", f"{found}, the oldest for {status.oldest_waiting_s:.0f} s", mend)
    return Check("recorder", "ok", found)


def _waiting(status: RecorderStatus) -> Check:
    found = f"it cannot write: {status.reason}; {status.waiting_segments} segments wait"
    mend = f"free some space, or mend the database of flow runs; {_IN_THE_SPOOL}"
    return Check("recorder", "problem" if status.oldest_waiting_s > BEHIND_S else "warning", found, mend)
