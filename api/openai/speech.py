"""`POST /v1/audio/speech`: a file that is sent as it is spoken, or OpenAI's events with its pieces."""

import asyncio
from collections.abc import Callable
from typing import Final

from api.asgi import EventStream, Exchange
from api.errors import Headers
from api.openai.endpoint import Endpoint
from api.run import Delivery
from flows.speech import form_of
from infra.ffmpeg_audio import FORMS
from infra.tokens import Key
from infra.types import Json

SPEAKS: Final = "/v1/audio/speech"
_ANY: Final = "application/octet-stream"
_TURNS: Final = 10
"""Of the loop, at the most, until a connection that was cut is known to be."""


class SoundStream(EventStream):
    """The client's end of a file of one media type. Bytes have no place for an error: one breaks the connection off, so
    that nobody takes half a file for a whole one."""

    __slots__ = ("_broken", "_media_type")

    def __init__(self, exchange: Exchange, extra: Callable[[], Headers], media_type: str) -> None:
        super().__init__(exchange, extra)
        self._media_type = media_type.encode()
        self._broken = False

    @property
    def head(self) -> Headers:
        """See `EventStream.head`."""
        return [(b"content-type", self._media_type)]

    def aside(self) -> bytes:
        """Nothing: each byte is heard."""
        return b""

    async def tell(self, _error: Exception) -> None:
        """The file will not be whole."""
        self._broken = True

    async def end(self) -> None:
        """Close the stream if it is whole, else the connection."""
        if not self._broken:
            await super().end()
            return
        client = self._exchange.client
        client.cut()
        for _ in range(_TURNS):
            if client.gone:
                return
            await asyncio.sleep(0)


class SpeechEndpoint(Endpoint):
    """The route as an ASGI application."""

    def _delivery(self, _exchange: Exchange, _key: Key, body: dict[str, Json]) -> Delivery:
        return delivery(body)


def delivery(body: dict[str, Json]) -> Delivery:
    """How the answer to a checked request leaves."""
    if body.get("stream_format") == "sse":
        return Delivery()
    form = form_of(body)
    media_type = FORMS[form].media_type if form in FORMS else _ANY
    return Delivery(lambda exchange, extra: SoundStream(exchange, extra, media_type), flows=True)
