"""Audio of any common container as plain samples, through ffmpeg, which is trusted with nothing.

With `infra.recordings` the one module that runs ffmpeg. It reads what it is given and nothing else: a pipe (or, for
containers whose index may stand at the end, an open file without a name), a demuxer that is chosen from the first
bytes, so that a playlist or a script that names other files is never one, no protocol but that, and limits of time,
memory and length. Blocks: call it in a thread.
"""

import contextlib
import functools
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import imageio_ffmpeg

from infra.containers import HEAD_BYTES, require_sound
from infra.errors import EngineFailed, InvalidRequest, NotInstalled

RATE_HZ: Final = 16_000
SAMPLE_BYTES: Final = 2
MOST_SECONDS: Final = 7200
"""Longest audio of one request."""
TIME_LIMIT_S: Final = 300.0
_MEMORY_BYTES: Final = 2 << 30
"""Of address space; ffmpeg itself takes a few hundred MiB of it."""
_READ_BYTES: Final = 1 << 20
_LOG_BYTES: Final = 16_384
_SEEKABLE: Final = "mov"
_DAMAGE: Final = re.compile(
    r"partial file|truncat|moov atom not found|premature|invalid data found|error while decoding|end of file",
    re.IGNORECASE,
)


@functools.cache
def ffmpeg() -> Path:
    """The program: the one that comes with imageio-ffmpeg, else the machine's.

    Raises:
        NotInstalled: there is none.
    """
    try:
        return Path(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError:
        found = shutil.which("ffmpeg")
    if found is None:
        raise NotInstalled("there is no ffmpeg for this machine: install it with the system's packages")
    return Path(found)


def decode(data: bytes, *, most_seconds: float = MOST_SECONDS, time_limit_s: float = TIME_LIMIT_S) -> bytearray:
    """The first audio track of a file as 16-bit samples, one channel, 16 kHz.

    Raises:
        InvalidRequest: no audio in there, or it is damaged, cut off, or too long.
        NotInstalled: there is no ffmpeg.
        EngineFailed: ffmpeg could not be run.
    """
    demuxer = require_sound(data[:HEAD_BYTES])
    _require_whole_wav(data, demuxer)
    samples, code, log = _run(data, demuxer, most_seconds, time_limit_s)
    if len(samples) > most_seconds * RATE_HZ * SAMPLE_BYTES:
        raise InvalidRequest(
            f"the audio is longer than the {most_seconds / 60:.0f} minutes that one request may have: cut it up",
            param="file",
            code="audio_too_long",
        )
    if code or not samples or _DAMAGE.search(log) or _short_flac(data, demuxer, len(samples)):
        raise InvalidRequest(
            "the audio cannot be decoded: the file has no audio in it, is damaged, or is cut off",
            param="file",
            code="invalid_audio",
        )
    return samples


def _run(data: bytes, demuxer: str, most_seconds: float, time_limit_s: float) -> tuple[bytearray, int, str]:
    """What ffmpeg makes of it, how it ends (below 0: it was ended), and what it says."""
    seekable = demuxer == _SEEKABLE
    source = ["-protocol_whitelist", "fd", "-f", demuxer, "-fd", "0", "-i", "fd:"] if seekable else [
        "-protocol_whitelist", "pipe", "-f", demuxer, "-i", "pipe:0"
    ]  # fmt: skip
    argv = [str(ffmpeg()), "-hide_banner", "-loglevel", "error", "-nostdin", "-threads", "1", *source]
    argv += ["-map", "0:a:0", "-vn", "-sn", "-dn", "-map_metadata", "-1"]
    argv += ["-ac", "1", "-ar", str(RATE_HZ), "-c:a", "pcm_s16le", "-f", "s16le", "pipe:1"]
    most_bytes = int(most_seconds * RATE_HZ * SAMPLE_BYTES)
    with _input(data if seekable else None) as stdin, tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=log, env={})
        except OSError as error:
            raise EngineFailed(f"ffmpeg could not be run: {error.strerror}") from error
        timer = threading.Timer(time_limit_s, process.kill)
        feeder = threading.Thread(target=_feed, args=(process.stdin, data), daemon=True)
        with process:
            try:
                bound(process.pid, time_limit_s)
                timer.start()
                feeder.start()
                samples = _read(process.stdout, most_bytes)
                if len(samples) > most_bytes:
                    process.kill()
                process.wait()
            finally:
                process.kill()
                timer.cancel()
        log.seek(0)
        return samples, process.returncode, log.read(_LOG_BYTES).decode(errors="replace")


@contextlib.contextmanager
def _input(data: bytes | None) -> "Iterator[IO[bytes] | int]":
    """Where ffmpeg reads from: a pipe, or an open file without a name with `data` in it."""
    if data is None:
        yield subprocess.PIPE
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        yield file


def _feed(pipe: IO[bytes] | None, data: bytes) -> None:
    """Write to a pipe whose reader may have had enough."""
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError, ValueError), pipe:
            pipe.write(data)


def _read(pipe: IO[bytes] | None, most_bytes: int) -> bytearray:
    """All that comes, until it is too much."""
    assert pipe is not None
    samples = bytearray()
    while len(samples) <= most_bytes and (piece := pipe.read(_READ_BYTES)):
        samples += piece
    return samples


def bound(pid: int, time_limit_s: float) -> None:
    """Bound what the process may take, where the system can; a process that has ended already needs no bounds."""
    if sys.platform == "linux":
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            seconds = round(time_limit_s) + 1
            resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))


def _require_whole_wav(data: bytes, demuxer: str) -> None:
    """Refuse a WAV that is shorter than it says: ffmpeg takes what there is. (What was streamed says nothing.)"""
    at = 12
    while demuxer == "wav" and data.startswith(b"RIFF") and at + 8 <= len(data):
        name, size_bytes = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"data":
            if len(data) - at - 8 < size_bytes < 0x7FFFF000:
                raise InvalidRequest(
                    f"the audio is cut off: its header tells of {size_bytes} bytes of sound, there are "
                    f"{len(data) - at - 8}",
                    param="file",
                    code="invalid_audio",
                )
            return
        at += 8 + size_bytes + size_bytes % 2


def _short_flac(data: bytes, demuxer: str, samples_bytes: int) -> bool:
    """Whether less was decoded than the stream's first block promises."""
    if demuxer != "flac" or len(data) < 42:
        return False
    packed = int.from_bytes(data[18:26], "big")
    rate_hz, count = packed >> 44, packed & 0xFFFFFFFFF
    return bool(rate_hz and count) and samples_bytes / SAMPLE_BYTES / RATE_HZ < 0.98 * count / rate_hz - 0.1
