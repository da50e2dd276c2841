"""Pictures for tests: drawn here, so that none has to be kept."""

import io
import struct
import zlib

from PIL import Image

SIDE = 64


def gradient(width: int = SIDE, height: int = SIDE) -> Image.Image:
    """A picture in which no two parts are alike."""
    return Image.merge(
        "RGB", [Image.linear_gradient("L").rotate(turn).resize((width, height)) for turn in (0, 90, 180)]
    )


def left_half(width: int = SIDE, height: int = SIDE) -> Image.Image:
    """A mask that is white on the left."""
    mask = Image.new("L", (width, height), 0)
    mask.paste(255, (0, 0, width // 2, height))
    return mask


def encoded(image: Image.Image, form: str = "PNG") -> bytes:
    """The picture as a file."""
    held = io.BytesIO()
    image.save(held, form)
    return held.getvalue()


def pixels(data: bytes) -> bytes:
    """What a picture's file shows, in RGB."""
    return Image.open(io.BytesIO(data)).convert("RGB").tobytes()


def bomb(side: int = 20_000) -> bytes:
    """A PNG of some hundred bytes that says it is that large."""
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
