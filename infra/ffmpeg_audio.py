"""Speech in the formats that clients ask for: samples through ffmpeg as they come, its output as it is made.

ffmpeg reads plain samples from a pipe and writes to a pipe: it opens nothing, and guesses nothing. What it writes
depends on the samples alone. WAV, and samples at their own rate, need no ffmpeg.
"""

import asyncio
import contextlib
import resource
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from typing import IO, Final, NamedTuple

from infra.errors import EngineFailed
from infra.ffmpeg import ffmpeg
from infra.wav import HEAD_BYTES, SAMPLE_BYTES, head

PCM_RATE_HZ: Final = 24_000
"""Of the format `pcm`, as OpenAI's."""
_MEMORY_BYTES: Final = 1 << 30
_CPU_LIMIT_S: Final = 1800
_READ_BYTES: Final = 1 << 16
_SMALL_BYTES: Final = 4096
_GATHER_S: Final = 0.01
"""ffmpeg writes frame by frame, so that nothing waits in it; so long more of them are waited for."""
_LOG_BYTES: Final = 2000
_FLAC_COUNT_AT: Final = 18
"""Where the eight bytes begin in a FLAC's first block whose last 36 bits are the number of its samples."""


class Form(NamedTuple):
    """A format: its media type, and how ffmpeg is told to write it; by nothing where it is not needed."""

    media_type: str
    options: tuple[str, ...] = ()


FORMS: Final[dict[str, Form]] = {
    "mp3": Form(
        "audio/mpeg", ("-c:a", "libmp3lame", "-b:a", "64k", "-write_xing", "0", "-id3v2_version", "0", "-f", "mp3")
    ),
    "opus": Form("audio/ogg", ("-c:a", "libopus", "-b:a", "32k", "-page_duration", "200000", "-f", "ogg")),
    "aac": Form("audio/aac", ("-c:a", "aac", "-b:a", "64k", "-f", "adts")),
    "flac": Form("audio/flac", ("-c:a", "flac", "-f", "flac")),
    "wav": Form("audio/wav"),
    "pcm": Form("audio/pcm"),
}


async def encoded(pieces: AsyncIterator[bytes], form: str, rate_hz: int) -> AsyncGenerator[bytes, None]:
    """16-bit samples of one channel as a file of the format, piece by piece; its head cannot say how long it is.

    Close it (`contextlib.aclosing`) if it is not read to its end.

    Raises:
        NotInstalled: there is no ffmpeg.
        EngineFailed: ffmpeg could not be run, or failed.
    """
    if form == "wav":
        yield head(rate_hz, None)
    if form == "wav" or (form == "pcm" and rate_hz == PCM_RATE_HZ):
        async for piece in pieces:
            yield piece
        return
    options = ("-ar", str(PCM_RATE_HZ), "-f", "s16le") if form == "pcm" else FORMS[form].options
    async with contextlib.aclosing(_through(pieces, rate_hz, options)) as made:
        async for piece in made:
            yield piece


async def resampled(pieces: AsyncIterator[bytes], rate_hz: int, wanted_hz: int) -> AsyncGenerator[bytes, None]:
    """The same samples at another rate.

    Raises:
        NotInstalled, EngineFailed: as `encoded`.
    """
    async with contextlib.aclosing(_through(pieces, rate_hz, ("-ar", str(wanted_hz), "-f", "s16le"))) as made:
        async for piece in made:
            yield piece


async def encode(pieces: AsyncIterator[bytes], form: str, rate_hz: int) -> bytes:
    """The whole file, whose head says how long it is, where the format has a place for that.

    Raises:
        NotInstalled, EngineFailed: as `encoded`.
    """
    given_bytes = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal given_bytes
        async for piece in pieces:
            given_bytes += len(piece)
            yield piece

    whole = bytearray()
    async with contextlib.aclosing(encoded(counted(), form, rate_hz)) as made:
        async for piece in made:
            whole += piece
    if form == "wav":
        whole[:HEAD_BYTES] = head(rate_hz, len(whole) - HEAD_BYTES)
    elif form == "flac":
        told = int.from_bytes(whole[_FLAC_COUNT_AT : _FLAC_COUNT_AT + 8], "big") >> 36 << 36
        whole[_FLAC_COUNT_AT : _FLAC_COUNT_AT + 8] = (told | given_bytes // SAMPLE_BYTES).to_bytes(8, "big")
    return bytes(whole)


async def _through(pieces: AsyncIterator[bytes], rate_hz: int, options: tuple[str, ...]) -> AsyncGenerator[bytes, None]:
    """What ffmpeg makes of the samples, as it makes it. An error of `pieces` is raised here."""
    argv = [str(ffmpeg()), "-hide_banner", "-loglevel", "error", "-nostdin", "-threads", "1", "-filter_threads", "1"]
    argv += ["-protocol_whitelist", "pipe", "-probesize", "32", "-analyzeduration", "0", "-fflags", "+nobuffer"]
    argv += ["-f", "s16le", "-ar", str(rate_hz), "-ac", "1", "-i", "pipe:0", "-map_metadata", "-1"]
    argv += ["-flags:a", "+bitexact", "-fflags", "+bitexact", "-flush_packets", "1", *options, "pipe:1"]
    with tempfile.TemporaryFile() as log:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, env={}
            )
        except OSError as error:
            raise EngineFailed(f"ffmpeg could not be run: {error.strerror}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        feeder = asyncio.create_task(_feed(process.stdin, pieces))
        try:
            _limit(process.pid)
            while piece := await process.stdout.read(_READ_BYTES):
                yield piece
                if len(piece) < _SMALL_BYTES:
                    await asyncio.sleep(_GATHER_S)
            await feeder
            if code := await process.wait():
                raise EngineFailed(f"ffmpeg failed (exit code {code}): {_end_of(log)}")
        finally:
            feeder.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.gather(feeder, return_exceptions=True)
            await process.wait()


async def _feed(pipe: asyncio.StreamWriter, pieces: AsyncIterator[bytes]) -> None:
    """Write what comes; a reader that ends before shows by its exit code why."""
    try:
        async for piece in pieces:
            pipe.write(piece)
            await pipe.drain()
    except ConnectionError:
        return
    finally:
        pipe.close()


def _limit(pid: int) -> None:
    """Bound what the process may take, where the system can; a process that has ended already needs no bounds."""
    if sys.platform == "linux":
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            resource.prlimit(pid, resource.RLIMIT_CPU, (_CPU_LIMIT_S, _CPU_LIMIT_S))


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-_LOG_BYTES:].decode(errors="replace").strip()
