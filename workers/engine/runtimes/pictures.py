"""Pictures that come with a request, decoded within limits, and those that go out, encoded."""

import io
from typing import Final

from PIL import Image, ImageOps, UnidentifiedImageError

from infra.errors import InvalidRequest
from workers.engine.drawing import MAX_INPUT_PIXELS, Form

_TAKEN: Final = ("PNG", "JPEG", "WEBP")


def opened(data: bytes, part: str) -> Image.Image:
    """The picture, upright. `part` is what the request calls it.

    Raises:
        InvalidRequest: it is no PNG, JPEG or WebP, has too many pixels, or cannot be decoded.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=_TAKEN)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise _unreadable(part) from error
    if image.width * image.height > MAX_INPUT_PIXELS:  # known from its head; nothing is decoded yet
        raise InvalidRequest(
            f"{part} has {image.width} x {image.height} pixels; {MAX_INPUT_PIXELS} are the most", param=part
        )
    try:
        image = ImageOps.exif_transpose(image)
    except MemoryError:
        raise
    except Exception as error:  # of whatever kind: many parsers have a look at what its sender has written into it
        raise _unreadable(part) from error
    return _eight_bits(image) if image.mode.startswith("I") else image


def colours(image: Image.Image, sides: tuple[int, int]) -> Image.Image:
    """The picture in RGB, on white where it is transparent, and of that width and height."""
    if image.has_transparency_data:
        over = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", over.size, "white"), over)
    image = image.convert("RGB")
    return image if image.size == sides else image.resize(sides, Image.Resampling.LANCZOS)


def masked(mask: Image.Image, sides: tuple[int, int]) -> Image.Image:
    """The mask as diffusers takes it, white where is to be drawn: there a mask with transparency is transparent, as
    OpenAI's are, and one without is white."""
    grey = ImageOps.invert(mask.convert("RGBA").getchannel("A")) if mask.has_transparency_data else mask.convert("L")
    return grey if grey.size == sides else grey.resize(sides, Image.Resampling.NEAREST)


def encoded(image: Image.Image, form: Form, quality: int) -> bytes:
    """The picture as a file, without anything but its pixels."""
    held = io.BytesIO()
    if form == "png":
        image.save(held, "PNG")
    else:
        image.save(held, form.upper(), quality=quality)
    return held.getvalue()


def _eight_bits(image: Image.Image) -> Image.Image:
    """A grey picture of 16 bits in 8: converted as it is, all but its darkest parts would be white."""
    return image.convert("I").point(lambda level: level * (1 / 256)).convert("L")


def _unreadable(part: str) -> InvalidRequest:
    return InvalidRequest(
        f"{part} cannot be read: send a whole PNG, JPEG or WebP image", param=part, code="invalid_image"
    )
