"""What a document is, told by its first bytes, and the limits of what is opened. Standard library alone."""

from typing import Final, Literal, NamedTuple, get_args

ImageType = Literal["image/png", "image/jpeg", "image/webp", "image/tiff", "image/bmp", "image/gif"]
DocumentType = Literal["application/pdf"] | ImageType
IMAGE_TYPES: Final[tuple[ImageType, ...]] = get_args(ImageType)

MAX_PIXELS: Final = 64_000_000
"""Of one image, decoded: an A4 page scanned at 800 dpi. Told by the file's header, before anything is decoded."""
MAX_PAGES: Final = 500
"""Of one document."""
MAX_RENDERED_PIXELS: Final = 25_000_000
"""Of one page of a PDF: a larger one is rendered with fewer dots an inch."""
DEFAULT_DPI: Final = 200
DPI_RANGE: Final = (50, 600)

_PDF_WITHIN: Final = 1024
"""A PDF's mark may come after some bytes of junk (ISO 32000-1, note 13 of appendix H)."""


class Span(NamedTuple):
    """Pages from `first` to `last`, both counted from 1 and both among them."""

    first: int
    last: int


class Page(NamedTuple):
    """One page as RGB, eight bits a channel, row by row without gaps: `width` x `height` x 3 bytes."""

    number: int
    width: int
    height: int
    pixels: bytes


def too_large(width: int, height: int) -> str | None:
    """What is said of an image of more pixels than are opened; None for any other."""
    if width * height <= MAX_PIXELS:
        return None
    return f"this image has {width} x {height} pixels; {MAX_PIXELS / 1e6:.0f} million are the most: send a smaller one"


def sniff(data: bytes) -> DocumentType | None:
    """What the bytes are, whatever their name says; None for what is no document."""
    for mark, kind in _MARKS:
        if data.startswith(mark):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if b"%PDF-" in data[:_PDF_WITHIN] else None


_MARKS: Final[tuple[tuple[bytes, ImageType], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
