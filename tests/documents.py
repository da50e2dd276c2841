"""Documents made for tests: drawn sentences, pages of a PDF, and files that are made to hurt."""

import io
import struct
import zlib
from collections.abc import Sequence

import pypdfium2
from PIL import Image, ImageDraw, ImageFont

SENTENCES = (
    "Every request becomes a plan of small steps.",
    "Invoice 2041: total 318.50 EUR, due 12 May.",
    "The quick brown fox jumps over the lazy dog.",
    "Pages are read in order, and merged in order.",
)


def drawn(lines: Sequence[str] = SENTENCES, *, size: int = 32, width: int = 900) -> Image.Image:
    """Black lines of text on white."""
    image = Image.new("RGB", (width, 40 + 2 * size * len(lines)), "white")
    pen = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        pen.text((20, 20 + 2 * size * row), line, font=ImageFont.load_default(size), fill="black")
    return image


def encoded(image: Image.Image, kind: str = "PNG", **how: object) -> bytes:
    """The image as a file."""
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def pdf(pages: Sequence[Image.Image]) -> bytes:
    """A PDF with a page for each image."""
    first, *rest = [page.copy() for page in pages]
    return encoded(first, "PDF", save_all=True, append_images=rest, resolution=100.0)


def empty_pdf(pages: int) -> bytes:
    """A PDF of so many empty pages."""
    document, file = pypdfium2.PdfDocument.new(), io.BytesIO()
    for _ in range(pages):
        document.new_page(200, 100)
    document.save(file)
    document.close()
    return file.getvalue()


def locked_pdf() -> bytes:
    """A PDF that needs a password: the standard security handler, with keys that fit no empty one."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 100 100]>>",
        b"<</Filter/Standard/V 1/R 2/Length 40/P -44/O<" + b"41" * 32 + b">/U<" + b"42" * 32 + b">>>",
    ]
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj" % number + text + b"endobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer<</Size 5/Root 1 0 R/Encrypt 4 0 R/ID[<" + b"00" * 16 + b"><" + b"00" * 16 + b">]>>\n"
    head = b"xref\n0 5\n0000000000 65535 f \n"
    return body + head + table + trailer + b"startxref\n%d\n%%%%EOF" % len(body)


def huge_png(side: int = 20_000) -> bytes:
    """A few bytes that claim to be a square image of that side; nobody has to draw it."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def distance(one: str, other: str) -> int:
    """Letters to add, take away or change to make one the other."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]
