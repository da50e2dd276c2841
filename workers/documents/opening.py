"""Asks the reader's process for the pages of a document. Blocks: call it from a thread."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Final

from infra.errors import InvalidRequest, PayloadTooLarge
from infra.pictures import measure
from infra.settings import inherited_environment
from workers.documents.types import DocumentType, Page, Span, too_large

_TOO_LARGE: Final = frozenset({"too_many_pixels", "too_many_pages", "too_large"})
_LONGEST_HEAD: Final = 1 << 16


def count_pages(data: bytes, kind: DocumentType) -> int:
    """The number of pages. Most images say by their head that they are one: no process is started for them.

    Raises:
        InvalidRequest: it is damaged, locked by a password, or has no page.
        PayloadTooLarge: it has too many, or takes too much memory to open.
    """
    picture = measure(data)
    if picture is not None:
        if (why := too_large(picture.width, picture.height)) is not None:
            raise PayloadTooLarge(why, param="file", code="too_many_pixels")
        return 1
    with _reading(data, kind, "count") as output:
        head = _head(output)
        found = head.get("pages")
        if not isinstance(found, int):
            raise _damaged()
        return found


def open_pages(data: bytes, kind: DocumentType, span: Span, dpi: int) -> Iterator[Page]:
    """The pages of the span, each when it is asked for; a span that ends behind the last page gives those there are.

    Raises:
        InvalidRequest: the document or a page is damaged or locked.
        PayloadTooLarge: it has too many pixels, or takes too much memory.
    """
    with _reading(data, kind, str(span.first), str(span.last), str(dpi)) as output:
        while head := _head(output):
            number, width, height = head.get("number"), head.get("width"), head.get("height")
            if not (isinstance(number, int) and isinstance(width, int) and isinstance(height, int)):
                raise _damaged()
            pixels = output.read(width * height * 3)
            if len(pixels) != width * height * 3:
                raise _damaged()
            yield Page(number, width, height, pixels)


@contextlib.contextmanager
def _reading(data: bytes, kind: DocumentType, *wanted: str) -> Iterator[IO[bytes]]:
    """The reader's output; its process is gone when the block ends, however it ends."""
    program = "workers.documents.pdfs" if kind == "application/pdf" else "workers.documents.images"
    argv = [sys.executable, "-P", "-m", program, kind, *wanted]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=inherited_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    feeding = threading.Thread(target=_feed, args=(process.stdin, data), daemon=True)
    feeding.start()
    try:
        yield process.stdout
    finally:
        process.kill()
        process.wait()
        feeding.join()
        process.stdout.close()


def _feed(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError), stream:  # a reader that has ended needs no more
        stream.write(data)


def _head(output: IO[bytes]) -> dict[str, object]:
    """The next frame's head; empty at the end of the document."""
    size = int.from_bytes(output.read(4), "big")
    if not 0 < size <= _LONGEST_HEAD:  # the process is dead: it met a limit, or a fault of the library
        raise _damaged()
    try:
        head = json.loads(output.read(size))
    except ValueError as error:
        raise _damaged() from error
    if not isinstance(head, dict):
        raise _damaged()
    if "error" in head:
        kind = PayloadTooLarge if head.get("code") in _TOO_LARGE else InvalidRequest
        raise kind(str(head["error"]), param="file", code=str(head.get("code")))
    return head


def _damaged() -> InvalidRequest:
    return InvalidRequest(
        "this document cannot be read: it is damaged, or takes more time or memory than is allowed",
        param="file",
        code="unreadable",
    )
