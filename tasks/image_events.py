"""OpenAI's events of images that are streamed: looks at an unfinished one, and each one when it is drawn."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Final

import orjson

from infra.clock import wall
from infra.errors import EngineFailed
from infra.pictures import measure
from infra.types import Json
from tasks.types import TaskCall

_NO_TOKENS: Final[dict[str, Json]] = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
"""What is counted of images here is the images."""


class ImageEvents:
    """The client's end of a step whose `inputs["events"]` are the `type` of its events and what else they say."""

    def __init__(self, call: TaskCall) -> None:
        self._call = call
        told = call.inputs["events"]
        assert isinstance(told, dict)
        self._told = told

    async def partial(self, data: bytes, index: int) -> None:
        """A look at an unfinished image, the `index`-th of it from 0.

        Raises:
            EngineFailed: it is no image.
        """
        await self._write(await self._event("partial_image", data, {"partial_image_index": index}))

    async def completed(self, data: bytes, *, last: bool) -> bytes:
        """A finished image. Of the last one a part is returned, which the stream ends with.

        Raises:
            EngineFailed: it is no image.
        """
        begin, rest = await self._event("completed", data, {"usage": _NO_TOKENS})
        await self._write((begin, b"" if last else rest))
        return rest if last else b""

    async def _write(self, event: tuple[bytes, bytes]) -> None:
        assert self._call.channel is not None
        await self._call.channel.write(b"".join(event))

    async def _event(self, what: str, data: bytes, more: Mapping[str, Json]) -> tuple[bytes, bytes]:
        """An event's first line, and the rest of it."""
        found = measure(data)
        if found is None:
            raise EngineFailed(f"{self._call.leased().id} answered with a file that is no PNG, JPEG or WebP image")
        kind = f"{self._told['type']}.{what}"
        event = {
            **self._told,
            "type": kind,
            "created_at": round(wall()),
            "size": f"{found.width}x{found.height}",
            "output_format": found.media_type.partition("/")[2],
            **more,
        }
        return f"event: {kind}\n".encode(), await asyncio.to_thread(_line, event, data)


def _line(event: dict[str, Json], data: bytes) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(event | {"b64_json": base64.b64encode(data).decode()})
