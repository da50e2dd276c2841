"""A form whose file goes to the disk as it comes, in pieces and within a limit."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

from api.asgi import ClientGone, Exchange
from api.multipart import Form, FormReader, OneFile
from infra.errors import PayloadTooLarge

_PIECE_BYTES: Final = 256 << 10
"""What is gathered before it goes to a thread: the way there costs as much as writing some tens of KiB."""
_FORM_BYTES: Final = 64 << 10
"""What a form may have besides its file: boundaries, headers, fields."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Does blocking work elsewhere."""


async def received(
    exchange: Exchange, field: str, write: Callable[[bytes], None], in_thread: InThread = asyncio.to_thread
) -> Form:
    """The whole form; the bytes of its file, which comes as `field`, went to `write`.

    Raises:
        InvalidRequest: it is no whole form.
        ClientGone: it left; and whatever `write` raises.
    """
    sink = OneFile(field, write)
    reader = FormReader(exchange.header(b"content-type"), sink)
    async for piece in pieces(exchange):
        await in_thread(partial(reader.feed, piece))
    reader.finish()
    return sink.form


async def pieces(exchange: Exchange) -> AsyncIterator[bytes]:
    """The body as it comes, gathered a little; its sender has more time after each piece.

    Raises:
        ClientGone: it left.
    """
    gathered = bytearray()
    more = True
    while more:
        message = await exchange.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        gathered += message.get("body", b"")
        more = message.get("more_body", False)
        if len(gathered) >= _PIECE_BYTES or not more:
            exchange.client.more_time()
            yield bytes(gathered)
            gathered.clear()


def announced_bytes(exchange: Exchange, most_bytes: int, hint: str) -> int:
    """The file's length at least, where the client tells that of its body; `hint`: what to do if it is too large.

    Raises:
        PayloadTooLarge: it is over the limit: nothing of it is read.
    """
    claimed = exchange.header(b"content-length")
    length_bytes = int(claimed) if claimed is not None and claimed.isascii() and claimed.isdecimal() else 0
    if length_bytes > most_bytes + _FORM_BYTES:
        raise PayloadTooLarge(
            f"the file is over the limit of {most_bytes} bytes: {hint}", param="file", code="file_too_large"
        )
    return max(0, length_bytes - _FORM_BYTES)
