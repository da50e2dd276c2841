"""Frames as an MP4 file, through ffmpeg: H.264 in 4:2:0, which every player knows, with the index at the start.

Reads raw pixels from a pipe and writes one file into a folder of its own. The same frames give the same bytes on one
build of ffmpeg. Blocks: call it in a thread.
"""

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

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
    with tempfile.TemporaryDirectory(prefix="coderai-video-") as folder, tempfile.TemporaryFile() as log:
        made = Path(folder) / "made.mp4"
        argv = [str(ffmpeg()), "-hide_banner", "-loglevel", "error", "-nostdin", "-protocol_whitelist", "pipe"]
        argv += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s:v", f"{width}x{height}", "-r", f"{fps:g}", "-i", "pipe:0"]
        argv += ["-c:v", "libx264", "-threads", str(_THREADS), *_QUALITY, "-pix_fmt", "yuv420p", *_SAME_BYTES]
        argv += ["-movflags", "+faststart", "-f", "mp4", str(made)]
        try:
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env={})
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
        if process.returncode or not made.exists():
            log.seek(0)
            said = " ".join(log.read(_LOG_BYTES).decode(errors="replace").split())
            raise EngineFailed(f"ffmpeg could not make an MP4 of {width}x{height} frames: {said or 'it was ended'}")
        return made.read_bytes()


def _feed(process: "subprocess.Popen[bytes]", frames: Iterable[bytes]) -> None:
    """Write all frames; a program that has ended tells why itself."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        for frame in frames:
            pipe.write(frame)
