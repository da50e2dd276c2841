"""Heads of WAV files, as the standard library reads them."""

import io
import wave

import pytest

from infra.wav import HEAD_BYTES, WavHead, head, read_head


@pytest.mark.parametrize(("rate_hz", "count"), [(22050, 1000), (48000, 0), (8000, 1)])
def test_a_head_says_what_the_standard_library_reads(rate_hz: int, count: int) -> None:
    made = head(rate_hz, 2 * count)
    assert len(made) == HEAD_BYTES
    with wave.open(io.BytesIO(made + bytes(2 * count))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, rate_hz)
        assert file.getnframes() == count
    assert read_head(made) == WavHead(rate_hz, 2 * count)


def test_a_length_that_nobody_knows_or_that_does_not_fit() -> None:
    assert read_head(head(24000, None) + b"samples") == WavHead(24000, None)
    assert read_head(head(24000, 1 << 32)) == WavHead(24000, None)


@pytest.mark.parametrize(
    ("at", "data"),
    [(0, b"RIFX"), (8, b"AVI "), (20, b"\x03"), (22, b"\x02"), (34, b"\x18"), (36, b"LIST"), (24, b"\0\0\0\0")],
    ids=["magic", "kind", "floats", "stereo", "24 bits", "another chunk", "no rate"],
)
def test_what_is_no_such_head(at: int, data: bytes) -> None:
    made = bytearray(head(22050, 2))
    made[at : at + len(data)] = data
    assert read_head(bytes(made)) is None
    assert read_head(bytes(made[:20])) is None
