"""A recording that lies on the disk: how long it is, and a piece of it as a file of its own.

Through ffmpeg, under the rules of `infra.ffmpeg`: the open file, which has no name there, is all that the program can
read. Whoever is cancelled ends the program.
"""

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from asyncio.subprocess import DEVNULL
from typing import IO, BinaryIO, Final

from infra.containers import HEAD_BYTES, require_sound
from infra.errors import EngineFailed
from infra.ffmpeg import MOST_SECONDS, RATE_HZ, TIME_LIMIT_S, bound, ffmpeg

MEASURE_LIMIT_S: Final = 10.0
"""No file takes nearly so long: it is read, not decoded."""
_SEEKABLE: Final = "mov"
_REACHED: Final = re.compile(rb"^out_time_us=(\d{1,15})$", re.MULTILINE)
_SOUND: Final = ("-map", "0:a:0", "-vn", "-sn", "-dn", "-map_metadata", "-1")
_MICROSECONDS: Final = 1_000_000


async def measure(file: BinaryIO, *, time_limit_s: float = MEASURE_LIMIT_S) -> float | None:
    """Seconds of the first audio track, by the times of what is really in the file; None where that cannot be told.

    Raises:
        InvalidRequest: it is no sound of a known kind.
        NotInstalled: there is no ffmpeg.
        EngineFailed: ffmpeg could not be run.
    """
    demuxer = await asyncio.to_thread(_demuxer, file)
    source = ["-protocol_whitelist", "fd", "-f", demuxer, "-fd", "0", "-i", "fd:"]
    with tempfile.TemporaryFile() as told:
        code = await _run(
            [*source, *_SOUND, "-c", "copy", "-progress", "pipe:1", "-f", "null", "-"], file, told, time_limit_s
        )
        told.seek(0)
        reached = _REACHED.findall(told.read())
    if code or not reached:
        return None
    return min(int(reached[-1]) / _MICROSECONDS, 2.0 * MOST_SECONDS)


async def cut_out(file: BinaryIO, start_s: float, end_s: float, *, time_limit_s: float = TIME_LIMIT_S) -> BinaryIO:
    """What is heard between two seconds, as a FLAC of one channel at 16 kHz, in an open file without a name.

    Its samples are those that `infra.ffmpeg.decode` gives of the whole: they are counted, whatever times the file has.

    Raises:
        InvalidRequest: it is no sound of a known kind.
        NotInstalled: there is no ffmpeg.
        EngineFailed: ffmpeg could not be run, or did not end well.
    """
    demuxer = await asyncio.to_thread(_demuxer, file)
    seekable = demuxer == _SEEKABLE
    source = ["-protocol_whitelist", "fd", "-f", demuxer, "-fd", "0", "-i", "fd:"] if seekable else [
        "-protocol_whitelist", "pipe", "-f", demuxer, "-i", "pipe:0"
    ]  # fmt: skip
    first, last = round(start_s * RATE_HZ), round(end_s * RATE_HZ)
    chain = (
        f"aformat=sample_fmts=s16:sample_rates={RATE_HZ}:channel_layouts=mono,"
        f"atrim=start_sample={first}:end_sample={last},asetpts=N/SR/TB"
    )
    target = ["-af", chain, "-c:a", "flac", "-compression_level", "1", "-f", "flac", "pipe:1"]
    piece: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # the caller's to close
    try:
        code = await _run([*source, *_SOUND, *target], file, piece, time_limit_s)
        piece.seek(0)
    except BaseException:
        piece.close()
        raise
    if code:
        piece.close()
        raise EngineFailed(f"no sound could be cut out from {start_s:.1f} s to {end_s:.1f} s of the recording")
    return piece


def _demuxer(file: BinaryIO) -> str:
    return require_sound(os.pread(file.fileno(), HEAD_BYTES, 0))


async def _run(arguments: list[str], file: BinaryIO, out: IO[bytes], time_limit_s: float) -> int:
    """The exit code of ffmpeg, which reads `file`, nobody else's, and writes to `out`; below 0: it was ended."""
    argv = [str(ffmpeg()), "-hide_banner", "-loglevel", "quiet", "-nostdin", "-threads", "1", *arguments]
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=file, stdout=out, stderr=DEVNULL, env={})
    except OSError as error:
        raise EngineFailed(f"ffmpeg could not be run: {error.strerror}") from error
    try:
        bound(process.pid, time_limit_s)
        async with asyncio.timeout(time_limit_s):
            return await process.wait()
    except TimeoutError:
        return -signal.SIGKILL
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
