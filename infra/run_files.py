"""Files of one run under `<home>/runs/<run id>/`: its answer, and results of its steps, so that a retry skips them."""

import hashlib
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from pydantic import ValidationError

from infra.errors import InvalidRequest
from infra.files import make_private_folder, write_atomic
from infra.types import FarShape, Json

_RUN: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_STEP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_STEPS: Final = "steps"
_ANSWER: Final = "answer"


class _Head(FarShape):
    """First line of an answer's file; the body follows."""

    media_type: str
    sha256: str


class RunFiles:
    """Results of steps and answers, each file whole or not at all, readable by the owner alone.

    A step's result does not wait for the disk: a file that a power cut tore is no JSON, counts as not kept, and the
    step is run again. An answer does wait: a client that was told where to fetch it will come.
    """

    def __init__(self, home: Path) -> None:
        self.root = make_private_folder(home / "runs")

    def keep_step(self, run: str, step: str, value: Json) -> None:
        """Keep the result of a step that has succeeded; a later one replaces it.

        Raises:
            InvalidRequest: the run's id is no UUID, the step's no plain name, or the value no JSON.
            DiskFull: no room; what was kept before is as it was.
        """
        if not _STEP.fullmatch(step):
            raise InvalidRequest(f"{step[:100]!r} is no id of a step")
        try:
            text = orjson.dumps(value)
        except TypeError as error:
            raise InvalidRequest(f"the result of step {step!r} is no JSON: {error}") from error
        folder = make_private_folder(self._folder(run) / _STEPS)
        write_atomic(folder / f"{step}.json", text, durable=False)

    def steps(self, run: str) -> dict[str, Json]:
        """The kept results by step; damaged ones are left out.

        Raises:
            InvalidRequest: the run's id is no UUID.
        """
        results: dict[str, Json] = {}
        try:
            entries = sorted(os.scandir(self._folder(run) / _STEPS), key=lambda entry: entry.name)
        except FileNotFoundError:
            return results
        for entry in entries:
            step, dot, suffix = entry.name.rpartition(".")
            if (dot, suffix) != (".", "json") or not _STEP.fullmatch(step) or not entry.is_file(follow_symlinks=False):
                continue
            try:
                results[step] = orjson.loads(Path(entry.path).read_bytes())
            except (orjson.JSONDecodeError, FileNotFoundError):
                continue
        return results

    def forget_steps(self, run: str) -> None:
        """Remove the kept results: a run that is executed again starts from its first step.

        Raises:
            InvalidRequest: the run's id is no UUID.
        """
        _remove(self._folder(run) / _STEPS)

    def keep_answer(self, run: str, body: bytes, media_type: str) -> None:
        """Keep the answer of a run; a later one replaces it.

        Raises:
            InvalidRequest: the run's id is no UUID.
            DiskFull: no room; the answer before is as it was.
        """
        head = {"media_type": media_type, "sha256": hashlib.sha256(body).hexdigest()}
        folder = make_private_folder(self._folder(run))
        write_atomic(folder / _ANSWER, orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE) + body)

    def answer(self, run: str) -> tuple[bytes, str] | None:
        """The kept answer and its media type; None without one, or with a damaged one.

        Raises:
            InvalidRequest: the run's id is no UUID.
        """
        try:
            line, _, body = (self._folder(run) / _ANSWER).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        try:
            head = _Head.model_validate_json(line)
        except ValidationError:
            return None
        return (body, head.media_type) if hashlib.sha256(body).hexdigest() == head.sha256 else None

    def complete(self, run: str, body: bytes, media_type: str) -> None:
        """Keep the answer. Another execution of a run that is complete starts from its first step.

        Raises:
            DiskFull: there is no room for it.
            InvalidRequest: the run's id is no UUID.
        """
        self.keep_answer(run, body, media_type)
        self.forget_steps(run)

    def forget(self, run: str) -> None:
        """Remove all files of a run.

        Raises:
            InvalidRequest: the run's id is no UUID.
        """
        _remove(self._folder(run))

    def idle(self, for_s: float) -> list[str]:
        """The runs whose files were last written to more than `for_s` seconds ago."""
        limit = time.time() - for_s
        return [
            entry.name
            for entry in os.scandir(self.root)
            if _RUN.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            if _written_at(Path(entry.path)) < limit
        ]

    def prune(self, older_than_s: float) -> int:
        """Remove the files of runs that were last written to more than `older_than_s` seconds ago; returns how many
        runs that were."""
        idle = self.idle(older_than_s)
        for run in idle:
            self.forget(run)
        return len(idle)

    def folder(self, run: str) -> Path:
        """Where a run's files lie, for what is appended to rather than kept whole; made by whoever needs it.

        Raises:
            InvalidRequest: the run's id is no UUID.
        """
        return self._folder(run)

    def _folder(self, run: str) -> Path:
        require_run_id(run)
        return self.root / run


def require_run_id(run: str) -> None:
    """Refuse what is no id of a run.

    Raises:
        InvalidRequest: it is no UUID in lower case.
    """
    if not _RUN.fullmatch(run):
        raise InvalidRequest(f"{run[:100]!r} is no id of a run: a UUID in lower case")


def _written_at(folder: Path) -> float:
    """When a file below was last put there: a rename is seen in its folder's own time."""
    times = []
    for path in (folder, folder / _STEPS):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return max(times, default=time.time())


def _remove(folder: Path) -> None:
    """Remove a tree; one that is missing, or that another process is removing, is no error."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
