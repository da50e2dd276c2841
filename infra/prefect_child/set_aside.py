"""`<spool>/set-aside.jsonl`: lines that could not be recorded, for a person to look at; bounded, private."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from infra.files import full_disk_named
from infra.prefect_child.segments import Line
from infra.recorder_status import SET_ASIDE_FILE

log = logging.getLogger("infra.prefect_child.drain")

MAX_BYTES: Final = 16 << 20
"""Of the file; what comes when it is full is only counted, and lost."""
LINE_BYTES: Final = 1 << 20
"""Of one line; the rest of it is cut off."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A line and why it is not a flow run."""

    line: Line
    reason: str


class SetAside:
    """Appends to the file in the spool's directory. It holds what clients sent, just as the segments do."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SET_ASIDE_FILE

    def add(self, refused: Sequence[Refused]) -> None:
        """Append; a copy that cannot be made is logged and goes without: good lines wait behind these."""
        if not refused:
            return
        first = refused[0]
        log.warning(
            "%d lines are set aside in %s, the first of segment %s: %s",
            len(refused),
            self._path,
            first.line.segment,
            first.reason,
        )
        try:
            with full_disk_named(self._path):
                self._append(refused)
        except Exception:
            log.exception("%d lines could not be copied to %s", len(refused), self._path)

    def _append(self, refused: Sequence[Refused]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            left_out = 0
            for one in refused:
                text = _entry(one)
                if file.tell() + len(text) <= MAX_BYTES:
                    file.write(text)
                else:
                    left_out += 1
        if left_out:
            log.error("%d of them are lost: %s is full; remove it when you have seen it", left_out, self._path)


def _entry(refused: Refused) -> bytes:
    line = refused.line
    return orjson.dumps(
        {
            "at": time.time(),
            "segment": line.segment,
            "reason": refused.reason,
            "line": line.text[:LINE_BYTES].decode(errors="backslashreplace"),
            "cut_off": line.oversized or len(line.text) > LINE_BYTES,
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )
