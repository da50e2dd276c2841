"""A body that goes to the disk as it comes: in pieces, within a limit."""

from collections.abc import AsyncIterator
from typing import Final

from api.asgi import ClientGone, Exchange
from infra.errors import PayloadTooLarge

_PIECE_BYTES: Final = 256 << 10
"""What is gathered before it goes to a thread: the way there costs as much as writing some tens of KiB."""
_FORM_BYTES: Final = 64 << 10
"""What a form may have besides its file."""


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


def announced_bytes(exchange: Exchange, most_bytes: int) -> int:
    """The body's length where the client tells it.

    Raises:
        PayloadTooLarge: it is over the limit: nothing of it is read.
    """
    claimed = exchange.header(b"content-length")
    length_bytes = int(claimed) if claimed is not None and claimed.isascii() and claimed.isdecimal() else 0
    if length_bytes > most_bytes + _FORM_BYTES:
        raise PayloadTooLarge(
            f"the request's body is over the limit of {most_bytes >> 20} MiB; send less, or raise server.max_body_mb",
            param="file",
        )
    return max(0, length_bytes - _FORM_BYTES)
