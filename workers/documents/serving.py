"""What the processes have in common that open one document: limits, what they are asked, and what they answer.

`python -m workers.documents.images TYPE count`, or `… TYPE FIRST LAST DPI`; likewise `workers.documents.pdfs`. The
document comes on standard input. Out go frames: a head, four bytes of length and then JSON, and after the head of a
page its pixels. `{"pages": n}` | `{"number", "width", "height"}` and pixels | `{"error": "a sentence", "code"}`. Such
a process imports little, for it is started for every document, and holds itself to limits of memory and CPU, because
files that people send are made to hurt.
"""

import contextlib
import json
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Final, Protocol

from PIL import Image

from workers.documents.types import MAX_PAGES, MAX_PIXELS, Page, Span

MEMORY_BYTES: Final = 3 << 30
OPENING_CPU_S: Final = 30
PAGE_CPU_S: Final = 10


class Refused(Exception):
    """The document cannot be read; the sentence says why, `code` in one word."""

    def __init__(self, sentence: str, code: str) -> None:
        super().__init__(sentence)
        self.code = code


class Reader(Protocol):
    """Opens documents of its kinds."""

    def count(self, data: bytes, kind: str) -> int:
        """The number of pages.

        Raises:
            Refused: it cannot be opened.
        """
        ...

    def pages(self, data: bytes, kind: str, span: Span, dpi: int) -> Iterator[Page]:
        """The pages of the span that there are, one after the other; `dpi` is for a PDF, an image has its own pixels.

        Raises:
            Refused: it cannot be opened, or a page cannot be decoded.
        """
        ...


def serve(arguments: list[str], reader: Reader) -> int:
    """Read the document, send its pages; 0 also when it was refused: then the last head says so."""
    kind, *rest = arguments
    span = Span(int(rest[0]), int(rest[1])) if rest[0] != "count" else Span(1, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who wanted the pages has gone
    limit(OPENING_CPU_S + PAGE_CPU_S * (span.last - span.first + 1))
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    warnings.simplefilter("ignore")  # Pillow's warning of what we refuse
    data = sys.stdin.buffer.read()
    try:
        if rest[0] == "count":
            _send({"pages": _few(reader.count(data, kind))})
            return 0
        for page in reader.pages(data, kind, span, int(rest[2])):
            _send({"number": page.number, "width": page.width, "height": page.height}, page.pixels)
        _send({})
    except Refused as refused:
        _send({"error": str(refused), "code": refused.code})
    except MemoryError:
        _send({"error": "this document takes more memory to open than is allowed", "code": "too_large"})
    return 0


def rgb(image: Image.Image, number: int) -> Page:
    """The page's pixels."""
    image = image.convert("RGB")
    return Page(number, image.width, image.height, image.tobytes())


def limit(cpu_s: int) -> None:
    """Hold this process to its memory, and to so much CPU."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    with contextlib.suppress(ValueError, OSError):  # macOS knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _few(found: int) -> int:
    if found < 1:
        raise Refused("this document has no page", "no_pages")
    if found > MAX_PAGES:
        raise Refused(f"this document has {found} pages; {MAX_PAGES} are the most: send it in parts", "too_many_pages")
    return found


def _send(head: dict[str, object], body: bytes = b"") -> None:
    text = json.dumps(head).encode()
    sys.stdout.buffer.write(len(text).to_bytes(4, "big") + text)
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
