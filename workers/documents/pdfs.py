"""The process that opens one PDF: `python -m workers.documents.pdfs` (see `workers.documents.serving`)."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

import pypdfium2
import pypdfium2.raw

from workers.documents.serving import Refused, rgb, serve
from workers.documents.types import MAX_RENDERED_PIXELS, Page, Span

_POINTS_AN_INCH: Final = 72


class Pdfs:
    """See `Reader`."""

    def count(self, data: bytes, _kind: str) -> int:
        """See `Reader.count`."""
        with _pdf(data) as document:
            return len(document)

    def pages(self, data: bytes, _kind: str, span: Span, dpi: int) -> Iterator[Page]:
        """See `Reader.pages`."""
        with _pdf(data) as document:
            document.init_forms()
            for number in range(span.first, min(span.last, len(document)) + 1):
                try:
                    page = document[number - 1]
                    width, height = page.get_size()
                    scale = dpi / _POINTS_AN_INCH
                    pixels = width * height * scale * scale
                    scale *= min(1.0, (MAX_RENDERED_PIXELS / pixels) ** 0.5) if pixels > 0 else 1.0
                    yield rgb(page.render(scale=scale).to_pil(), number)
                    page.close()
                except (pypdfium2.PdfiumError, ValueError) as error:
                    raise Refused(f"page {number} of this PDF is damaged: it cannot be drawn", "unreadable") from error


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


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], Pdfs()))
