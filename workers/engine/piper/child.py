"""The piper process, from our side: started, asked for sentences one at a time, started again when it has died.

What it says is checked as if it came from a stranger. Its words are in `speaker.py`.
"""

import os
import subprocess
import threading
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import Field, ValidationError

from infra.errors import EngineFailed, LoadFailed
from infra.settings import inherited_environment
from infra.supervisor.guard import PYTHON
from infra.types import Frozen
from workers.engine.piper.speaker import HEADER, MOST_ASKED_BYTES, write

SCRIPT: Final = Path(__file__).with_name("speaker.py")
LOAD_LIMIT_S: Final = 120.0
SENTENCE_LIMIT_S: Final = 120.0
"""A sentence takes a second or two; a process that takes so long hangs."""
MOST_SAID_BYTES: Final = 64 << 20
_TRIES: Final = 2
_STOP_S: Final = 5.0


class VoiceFacts(Frozen):
    """What the process says of its voice when it is loaded; `speakers` are empty where there is but one."""

    rate_hz: int = Field(ge=8000, le=48000)
    speakers: dict[str, int]


class _Sentence(Frozen):
    text: str
    length_scale: float
    speaker: int


class _Trouble(Frozen):
    message: str


class _Lost(Exception):
    """The process has died, hangs, or says what was not agreed."""


class Speaker:
    """One voice in a process of its own. Safe to ask from several threads: sentences are spoken one after the other."""

    def __init__(self, python: Path, voice: Path, threads: int) -> None:
        self._argv = [*PYTHON, "run", str(os.getpid()), str(python), "-I", str(SCRIPT), str(voice), str(threads)]
        self._one = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.facts = VoiceFacts(rate_hz=22050, speakers={})

    @property
    def pid(self) -> int | None:
        """The process's id, while there is one."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the process and wait until the voice is loaded.

        Raises:
            LoadFailed: it cannot be; the message has the process's own words.
        """
        with self._one:
            self._start()

    def say(self, text: str, length_scale: float, speaker: int = 0) -> bytes:
        """A sentence as 16-bit samples, one channel; empty if there is nothing to be heard in it.

        A process that dies over it is started anew, and asked once more.

        Raises:
            EngineFailed: it died again, or cannot say this.
        """
        sentence = _Sentence(text=text, length_scale=length_scale, speaker=speaker).model_dump_json().encode()
        if len(sentence) > MOST_ASKED_BYTES:
            raise EngineFailed("a sentence is longer than piper is given")
        with self._one:
            for _ in range(_TRIES):
                if self._process is None:
                    self._start()
                try:
                    return self._asked(sentence)
                except _Lost as error:
                    why = str(error)
                    self._end()
        raise EngineFailed(f"piper's process failed twice over one sentence: {why}")

    def close(self) -> None:
        """End the process."""
        with self._one:
            self._end()

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=inherited_environment()
            )
        except OSError as error:
            raise LoadFailed(f"piper's process could not be started: {error.strerror}") from error
        try:
            kind, data = self._answer(LOAD_LIMIT_S)
            if kind == b"R":
                self.facts = VoiceFacts.model_validate_json(data)
                return
            why = _Trouble.model_validate_json(data).message
        except (_Lost, ValidationError) as error:
            why = str(error)
        self._end()
        raise LoadFailed(f"the voice cannot be loaded: {why}")

    def _asked(self, sentence: bytes) -> bytes:
        """What is said.

        Raises:
            EngineFailed: the process says that it cannot.
            _Lost: it is of no use any more.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            write(process.stdin, b"S", sentence)  # type: ignore[arg-type]  # a pipe is one
        except OSError as error:
            raise _Lost(f"it ended: {error.strerror}") from error
        kind, data = self._answer(SENTENCE_LIMIT_S)
        if kind == b"A" and len(data) % 2 == 0:
            return data
        if kind != b"E":
            raise _Lost("it said what was not agreed")
        try:
            message = _Trouble.model_validate_json(data).message
        except ValidationError as error:
            raise _Lost("it said what was not agreed") from error
        raise EngineFailed(f"piper could not say a sentence: {message}")

    def _answer(self, limit_s: float) -> tuple[bytes, bytes]:
        """The next frame's letter and content."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        try:
            kind, size_bytes = HEADER.unpack(_exactly(process.stdout, HEADER.size))  # type: ignore[arg-type]
            if size_bytes > MOST_SAID_BYTES:
                raise _Lost("it said what was not agreed")
            return kind, _exactly(process.stdout, size_bytes)  # type: ignore[arg-type]
        finally:
            timer.cancel()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                _close(pipe)  # type: ignore[arg-type]
        process.wait(_STOP_S)


def _exactly(stream: BinaryIO, size_bytes: int) -> bytes:
    data = stream.read(size_bytes)
    if len(data) < size_bytes:
        raise _Lost("it ended")
    return data


def _close(pipe: BinaryIO) -> None:
    try:
        pipe.close()
    except OSError:
        return  # what was still to be sent to a dead process
