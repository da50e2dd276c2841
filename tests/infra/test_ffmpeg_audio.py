"""Samples become files: every format decodes to the same sound, as it comes or as a whole."""

import asyncio
import contextlib
import io
import subprocess
import wave
from collections.abc import AsyncIterator

import numpy as np
import pytest

from infra.errors import EngineFailed
from infra.ffmpeg import ffmpeg
from infra.ffmpeg_audio import FORMS, PCM_RATE_HZ, encode, encoded, resampled

RATE_HZ = 22050
SECONDS = 3.0
TONE = (8000 * np.sin(2 * np.pi * 440 * np.arange(int(SECONDS * RATE_HZ)) / RATE_HZ)).astype("<i2")
PADDING_S = {"mp3": 0.12, "aac": 0.12, "opus": 0.02, "flac": 0.001, "wav": 0.001, "pcm": 0.002}
"""What a codec puts before and after."""


async def pieces(data: bytes = TONE.tobytes(), size_bytes: int = 9999) -> AsyncIterator[bytes]:
    """Samples in pieces that end within one."""
    for at in range(0, len(data), size_bytes):
        yield data[at : at + size_bytes]


def decoded(data: bytes, form: str) -> np.ndarray:
    """What a player hears, at the rate of `pcm`."""
    raw = ["-f", "s16le", "-ar", str(PCM_RATE_HZ), "-ac", "1"] if form == "pcm" else []
    argv = [str(ffmpeg()), "-loglevel", "error", *raw, "-i", "pipe:0", "-f", "s16le", "-ac", "1"]
    done = subprocess.run([*argv, "-ar", str(PCM_RATE_HZ), "pipe:1"], input=data, capture_output=True, check=True)
    assert not done.stderr
    return np.frombuffer(done.stdout, "<i2")


@pytest.mark.parametrize("form", FORMS)
async def test_every_format_decodes_to_the_sound(form: str) -> None:
    whole = await encode(pieces(), form, RATE_HZ)
    heard = decoded(whole, form)
    assert 0 <= len(heard) / PCM_RATE_HZ - SECONDS + 0.0005 <= PADDING_S[form]
    spectrum = np.abs(np.fft.rfft(heard[: 2 * PCM_RATE_HZ]))
    assert abs(np.argmax(spectrum) / 2 - 440) < 2
    assert await encode(pieces(size_bytes=1 << 20), form, RATE_HZ) == whole  # the same file of the same samples


async def test_heads_say_how_long_a_whole_file_is() -> None:
    with wave.open(io.BytesIO(await encode(pieces(), "wav", RATE_HZ))) as file:
        assert (file.getframerate(), file.getnframes()) == (RATE_HZ, len(TONE))
    flac = await encode(pieces(), "flac", RATE_HZ)
    packed = int.from_bytes(flac[18:26], "big")
    assert (packed >> 44, packed & 0xFFFFFFFFF) == (RATE_HZ, len(TONE))


@pytest.mark.parametrize("form", FORMS)
async def test_what_comes_first_is_sent_first(form: str) -> None:
    """The file begins before its samples have ended."""
    begun = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield TONE.tobytes()
        await asyncio.wait_for(begun.wait(), 20)
        yield TONE.tobytes()

    size_bytes = 0
    async with contextlib.aclosing(encoded(slowly(), form, RATE_HZ)) as made:
        async for piece in made:
            size_bytes += len(piece)
            if size_bytes > 2000:
                begun.set()
    assert begun.is_set()


async def test_an_error_of_the_samples_is_raised() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield TONE.tobytes()
        raise EngineFailed("it broke off")

    with pytest.raises(EngineFailed, match="it broke off"):
        await encode(failing(), "mp3", RATE_HZ)


async def test_a_file_that_nobody_wants_any_more_ends_its_process() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield TONE.tobytes()

    async with asyncio.timeout(20), contextlib.aclosing(encoded(endless(), "opus", RATE_HZ)) as made:
        async for _piece in made:
            break


async def test_another_rate_is_as_long() -> None:
    made = b"".join([piece async for piece in resampled(pieces(), RATE_HZ, 16000)])
    assert abs(len(made) / 2 / 16000 - SECONDS) < 0.002
