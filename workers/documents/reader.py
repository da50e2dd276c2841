"""The process that opens one document: `python -m workers.documents.reader TYPE count`, or `… TYPE FIRST LAST DPI`.

The document comes on standard input. Out go frames: a head, four bytes of length and then JSON, and after the head
of a page its pixels. `{"pages": n}` | `{"number", "width", "height"}` and pixels | `{"error": "a sentence", "code"}`.
Imports little and holds itself to limits of memory and CPU, because files that people send are made to hurt.
"""

import contextlib
import io
import json
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Final

import pypdfium2
import pypdfium2.raw
from PIL import Image, ImageOps, ImageSequence

from workers.documents.types import IMAGE_TYPES, MAX_PAGES, MAX_PIXELS, MAX_RENDERED_PIXELS, Page, Span

MEMORY_BYTES: Final = 3 << 30
OPENING_CPU_S: Final = 30
PAGE_CPU_S: Final = 10
_FORMATS: Final[dict[str, str]] = {kind: kind.removeprefix("image/").upper() for kind in IMAGE_TYPES}
_POINTS_AN_INCH: Final = 72
_MANY_PIXELS: Final = f"{MAX_PIXELS / 1e6:.0f} million pixels are the most"


class Refused(Exception):
    """The document cannot be read; the sentence says why, `code` in one word."""

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.code = code


def count(data: bytes, kind: str) -> int:
    """The number of pages.

    Raises:
        Refused: it cannot be opened, or has too many.
    """
    if kind == "application/pdf":
        with _pdf(data) as document:
            return _few(len(document))
    with _image(data, kind) as image:
        return _few(_frames(image))


def pages(data: bytes, kind: str, span: Span, dpi: int) -> Iterator[Page]:
    """The pages of the span that there are, one after the other; `dpi` is for a PDF, an image has its own pixels.

    Raises:
        Refused: it cannot be opened, or a page cannot be decoded.
    """
    return _pdf_pages(data, span, dpi) if kind == "application/pdf" else _image_pages(data, kind, span)


@contextlib.contextmanager
def _pdf(data: bytes) -> Iterator[pypdfium2.PdfDocument]:
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise Refused("this PDF needs a password: remove it, and send the file again", "password") from error
        raise Refused("this PDF is damaged: it cannot be opened", "unreadable") from error
    try:
        yield document
    finally:
        document.close()


def _pdf_pages(data: bytes, span: Span, dpi: int) -> Iterator[Page]:
    with _pdf(data) as document:
        document.init_forms()
        for number in range(span.first, min(span.last, len(document)) + 1):
            try:
                page = document[number - 1]
                width, height = page.get_size()
                scale = dpi / _POINTS_AN_INCH
                pixels = width * height * scale * scale
                scale *= min(1.0, (MAX_RENDERED_PIXELS / pixels) ** 0.5) if pixels > 0 else 1.0
                yield _rgb(page.render(scale=scale).to_pil(), number)
                page.close()
            except (pypdfium2.PdfiumError, ValueError) as error:
                raise Refused(f"page {number} of this PDF is damaged: it cannot be drawn", "unreadable") from error


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


def _image_pages(data: bytes, kind: str, span: Span) -> Iterator[Page]:
    with _image(data, kind) as image:
        if _frames(image) == 1:
            yield _rgb(_decoded(image), 1)
            return
        for number, frame in enumerate(ImageSequence.Iterator(image), 1):
            if number > span.last:
                return
            if number >= span.first:
                yield _rgb(_decoded(frame), number)


def _frames(image: Image.Image) -> int:
    """A TIFF's frames are its pages; those of an animation are not."""
    return int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1


def _decoded(image: Image.Image) -> Image.Image:
    """The image upright, on white where it is transparent."""
    if image.width * image.height > MAX_PIXELS:
        raise Refused(
            f"this image has {image.width} x {image.height} pixels; {_MANY_PIXELS}: send a smaller one",
            "too_many_pixels",
        )
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


def _rgb(image: Image.Image, number: int) -> Page:
    image = image.convert("RGB")
    return Page(number, image.width, image.height, image.tobytes())


def _few(found: int) -> int:
    if found < 1:
        raise Refused("this document has no page", "no_pages")
    if found > MAX_PAGES:
        raise Refused(f"this document has {found} pages; {MAX_PAGES} are the most: send it in parts", "too_many_pages")
    return found


def _limit(cpu_s: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    with contextlib.suppress(ValueError, OSError):  # macOS knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _send(head: dict[str, object], body: bytes = b"") -> None:
    text = json.dumps(head).encode()
    sys.stdout.buffer.write(len(text).to_bytes(4, "big") + text)
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()


def main(arguments: list[str]) -> int:
    """Read the document, send its pages; 0 also when it was refused: then the last head says so."""
    kind, *rest = arguments
    span = Span(int(rest[0]), int(rest[1])) if rest[0] != "count" else Span(1, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who wanted the pages has gone
    _limit(OPENING_CPU_S + PAGE_CPU_S * (span.last - span.first + 1))
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    warnings.simplefilter("ignore")  # Pillow's warning of what we refuse
    data = sys.stdin.buffer.read()
    try:
        if rest[0] == "count":
            _send({"pages": count(data, kind)})
            return 0
        for page in pages(data, kind, span, int(rest[2])):
            _send({"number": page.number, "width": page.width, "height": page.height}, page.pixels)
        _send({})
    except Refused as refused:
        _send({"error": str(refused), "code": refused.code})
    except MemoryError:
        _send({"error": "this document takes more memory to open than is allowed", "code": "too_large"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
