"""Frames as an MP4 file, through ffmpeg: H.264 in 4:2:0, which every player knows, with the index at the start.

Reads raw pixels from a pipe and writes one file without a name. The same frames give the same bytes on one
build of ffmpeg. Blocks: call it in a thread.
"""

import contextlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from typing import IO, Final

from infra.errors import EngineFailed
from infra.ffmpeg import bound, ffmpeg

TIME_LIMIT_S: Final = 900.0
_THREADS: Final = 2
_LOG_BYTES: Final = 4096
_QUALITY: Final = ("-preset", "medium", "-crf", "18")
_SAME_BYTES: Final = ("-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact")


def encode_mp4(
    frames: Iterable[bytes], shape: tuple[int, int], fps: float, *, time_limit_s: float = TIME_LIMIT_S
) -> bytes:
    """The file. `shape` is (width, height), both even: each frame has so many pixels of 8-bit red, green and blue, row
    by row.

    What `frames` raises ends it and goes on.

    Raises:
        NotInstalled: there is no ffmpeg.
        EngineFailed: ffmpeg could not be run, or did not make a file of them.
    """
    width, height = shape
    with _unnamed_file() as made, tempfile.TemporaryFile() as log:
        argv = [str(ffmpeg()), "-hide_banner", "-loglevel", "error", "-nostdin", "-protocol_whitelist", "pipe"]
        argv += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s:v", f"{width}x{height}", "-r", f"{fps:g}", "-i", "pipe:0"]
        argv += ["-c:v", "libx264", "-threads", str(_THREADS), *_QUALITY, "-pix_fmt", "yuv420p", *_SAME_BYTES]
        argv += ["-movflags", "+faststart", "-f", "mp4", "-y", _name_of(made)]
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env={}, pass_fds=(made.fileno(),)
            )
        except OSError as error:
            raise EngineFailed(f"ffmpeg could not be run: {error.strerror}") from error
        timer = threading.Timer(time_limit_s, process.kill)
        with process:
            try:
                bound(process.pid, time_limit_s)
                timer.start()
                _feed(process, frames)
                process.wait()
            finally:
                process.kill()
                timer.cancel()
        data = made.read()
        if process.returncode or not data:
            log.seek(0)
            said = " ".join(log.read(_LOG_BYTES).decode(errors="replace").split())
            raise EngineFailed(f"ffmpeg could not make an MP4 of {width}x{height} frames: {said or 'it was ended'}")
        return data


def _unnamed_file() -> IO[bytes]:
    """A file that goes with this process, however that ends; elsewhere than on Linux one cannot be opened twice."""
    return tempfile.TemporaryFile() if sys.platform == "linux" else tempfile.NamedTemporaryFile(suffix=".mp4")


def _name_of(file: IO[bytes]) -> str:
    """What a child that has the file calls it."""
    return f"/proc/self/fd/{file.fileno()}" if sys.platform == "linux" else file.name


def _feed(process: "subprocess.Popen[bytes]", frames: Iterable[bytes]) -> None:
    """Write all frames; a program that has ended tells why itself."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        for frame in frames:
            pipe.write(frame)
