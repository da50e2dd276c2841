"""WAV files of 16-bit samples in one channel: their head, written and read. Pure."""

import struct
from typing import Final, NamedTuple

SAMPLE_BYTES: Final = 2
RATES_HZ: Final = (8000, 48000)
HEAD_BYTES: Final = 44
_UNKNOWN: Final = 0xFFFFFFFF
_HEAD: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_PCM: Final = 1


class WavHead(NamedTuple):
    """What a head says; `data_bytes` is None where the length was not known when it was written."""

    rate_hz: int
    data_bytes: int | None


def head(rate_hz: int, data_bytes: int | None) -> bytes:
    """The head of a file with `data_bytes` of samples; None where nobody knows yet how many will come."""
    known = data_bytes is not None and data_bytes + HEAD_BYTES - 8 <= _UNKNOWN
    riff_bytes, sound_bytes = (data_bytes + HEAD_BYTES - 8, data_bytes) if known and data_bytes is not None else (
        _UNKNOWN, _UNKNOWN
    )  # fmt: skip
    return _HEAD.pack(
        b"RIFF", riff_bytes, b"WAVE", b"fmt ", 16, _PCM, 1, rate_hz, rate_hz * SAMPLE_BYTES, SAMPLE_BYTES,
        8 * SAMPLE_BYTES, b"data", sound_bytes,
    )  # fmt: skip


def read_head(data: bytes) -> WavHead | None:
    """What the first `HEAD_BYTES` of a file written by `head` say; None for any other."""
    if len(data) < HEAD_BYTES:
        return None
    riff, _size, wave, fmt, fmt_bytes, kind, channels, rate_hz, _second, block, bits, name, sound_bytes = (
        _HEAD.unpack_from(data)
    )
    plain = (riff, wave, fmt, name) == (b"RIFF", b"WAVE", b"fmt ", b"data") and (fmt_bytes, kind) == (16, _PCM)
    if not plain or (channels, block, bits) != (1, SAMPLE_BYTES, 8 * SAMPLE_BYTES):
        return None
    if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
        return None
    return WavHead(rate_hz, None if sound_bytes == _UNKNOWN else sound_bytes)
