"""What a picture is and how large, by its first bytes, before anything is decoded: names and types are its sender's
claims. PNG (W3C PNG, 11.2.2), JPEG (ITU-T T.81, B.2.2) and WebP (RFC 9649); standard library alone.
"""

import struct
from typing import Final, Literal, NamedTuple

PictureType = Literal["image/png", "image/jpeg", "image/webp"]

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG's markers of a frame's header; the three others of that range are tables and an extension."""
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xDA)})
"""Markers without a segment."""
_MOST_SEGMENTS: Final = 1000


class Picture(NamedTuple):
    """A picture's kind and its size in pixels, as its head has them."""

    media_type: PictureType
    width: int
    height: int


def measure(data: bytes) -> Picture | None:
    """The picture that these bytes begin as; None for anything else, and for one that is cut off in its head."""
    try:
        if data.startswith(_PNG):
            return _png(data)
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError):
        return None
    return None


def _png(data: bytes) -> Picture | None:
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return _picture("image/png", width, height)


def _jpeg(data: bytes) -> Picture | None:
    at = 2
    for _ in range(_MOST_SEGMENTS):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # a byte of filling
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return _picture("image/jpeg", width, height)
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return None


def _webp(data: bytes) -> Picture | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
        return _picture("image/webp", width, height) if len(data) >= 30 else None
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int(struct.unpack_from("<I", data, 21)[0])
        return _picture("image/webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return _picture("image/webp", width & 0x3FFF, height & 0x3FFF)
    return None


def _picture(media_type: PictureType, width: int, height: int) -> Picture | None:
    return Picture(media_type, width, height) if width and height else None
