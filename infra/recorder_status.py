"""What the recorder says of itself in `<home>/run/recorder.json`: the Prefect child writes, whoever asks reads."""

import logging
import os
import time
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from infra.clock import Clock, monotonic
from infra.errors import DiskFull
from infra.files import make_private_folder, write_atomic
from infra.types import FarShape

log = logging.getLogger("infra.recorder_status")

STATUS_FILE: Final = ("run", "recorder.json")
SET_ASIDE_FILE: Final = "set-aside.jsonl"
"""In the spool: the lines that could not be recorded."""
STALE_S: Final = 90.0
"""A recorder that has said nothing for so long is not well: a locked SQLite alone may hold it up for 60 s."""
_LEAST_S: Final = 1.0
_BEAT_S: Final = 15.0

State = Literal["starting", "recording", "waiting", "off", "mismatch"]


class RecorderStatus(FarShape):
    """`waiting`: nothing can be written now, see `reason`; `mismatch`: Prefect's tables are not those we know.

    `recorded` and `set_aside` are lines since the recorder's start. Times are seconds, `written_at` since the epoch.
    """

    state: State
    reason: str = ""
    recorded: int = 0
    set_aside: int = 0
    waiting_segments: int = 0
    oldest_waiting_s: float = 0.0
    pid: int = 0
    written_at: float = 0.0

    def silent_s(self) -> float:
        """Seconds since it was written, never negative."""
        return max(0.0, time.time() - self.written_at)


class StatusFile:
    """Writes the status when it has changed, at most each second, and every 15 s as a sign of life."""

    def __init__(self, home: Path, clock: Clock = monotonic) -> None:
        self._path = home.joinpath(*STATUS_FILE)
        self._clock = clock
        self._written: RecorderStatus | None = None
        self._written_s = float("-inf")
        self._failing = False

    def say(self, status: RecorderStatus, *, now: bool = False) -> None:
        """Write it if it is time to, or at once; never raises for want of space: a status is not worth a record."""
        age_s = self._clock() - self._written_s
        if now or age_s >= _BEAT_S or (age_s >= _LEAST_S and status != self._written):
            self._write(status)

    def _write(self, status: RecorderStatus) -> None:
        self._written, self._written_s = status, self._clock()
        signed = status.model_copy(update={"pid": os.getpid(), "written_at": time.time()})
        try:
            make_private_folder(self._path.parent)
            write_atomic(self._path, signed.model_dump_json().encode(), durable=False)
        except (OSError, DiskFull) as error:
            if not self._failing:
                log.warning("the recorder's status cannot be written: %s", error)
            self._failing = True
        else:
            self._failing = False


def read_status(home: Path) -> RecorderStatus | None:
    """What the recorder said last; None where it has said nothing that can be read."""
    try:
        return RecorderStatus.model_validate_json(home.joinpath(*STATUS_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
