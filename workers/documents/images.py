"""The process that opens one image: `python -m workers.documents.images` (see `workers.documents.serving`)."""

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Final

from PIL import Image, ImageOps, ImageSequence

from workers.documents.serving import Refused, rgb, serve
from workers.documents.types import IMAGE_TYPES, MAX_PIXELS, Page, Span, too_large

_FORMATS: Final[dict[str, str]] = {kind: kind.removeprefix("image/").upper() for kind in IMAGE_TYPES}
_MANY_PIXELS: Final = f"{MAX_PIXELS / 1e6:.0f} million pixels are the most"


class Images:
    """See `Reader`."""

    def count(self, data: bytes, kind: str) -> int:
        """See `Reader.count`."""
        with _image(data, kind) as image:
            return _frames(image)

    def pages(self, data: bytes, kind: str, span: Span, _dpi: int) -> Iterator[Page]:
        """See `Reader.pages`."""
        with _image(data, kind) as image:
            if _frames(image) == 1:
                yield rgb(_decoded(image), 1)
                return
            for number, frame in enumerate(ImageSequence.Iterator(image), 1):
                if number > span.last:
                    return
                if number >= span.first:
                    yield rgb(_decoded(frame), number)


@contextlib.contextmanager
def _image(data: bytes, kind: str) -> Iterator[Image.Image]:
    """The image with its head read and nothing decoded."""
    try:
        with Image.open(io.BytesIO(data), formats=[_FORMATS[kind]]) as image:
            yield image
    except Image.DecompressionBombError as error:
        raise Refused(f"this image is too large: {_MANY_PIXELS}", "too_many_pixels") from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, OverflowError) as error:
        raise Refused("this image is damaged or cut off: it cannot be decoded", "unreadable") from error


def _frames(image: Image.Image) -> int:
    """A TIFF's frames are its pages; those of an animation are not."""
    return int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1


def _decoded(image: Image.Image) -> Image.Image:
    """The image upright, on white where it is transparent."""
    if (why := too_large(image.width, image.height)) is not None:
        raise Refused(why, "too_many_pixels")
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16") or upright.mode in ("I", "F"):  # a conversion would clip at 255
        low, high = upright.convert("F").getextrema()
        assert isinstance(low, float)
        assert isinstance(high, float)
        span = max(high, 255.0)
        return upright.convert("F").point(lambda value: value * (255.0 / span)).convert("L")
    if upright.has_transparency_data:
        seen = upright.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return upright


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], Images()))
