"""What the events of a stream of images say; that they are OpenAI's is seen with its own client's types."""

import base64
from typing import Any

import orjson
import pytest
from openai.types import ImageEditCompletedEvent, ImageGenPartialImageEvent

from infra.errors import EngineFailed
from infra.types import EngineId, Json, PoolId
from tasks.image_events import ImageEvents
from tasks.types import TaskCall
from tests.fakes import make_entry
from tests.pictures import encoded, gradient
from tests.tasks.said import Said
from workers.live import Engine
from workers.transport import Transport

PICTURE = encoded(gradient(96, 64), "WEBP")


def events_to(client: Said, transport: Transport, kind: str) -> ImageEvents:
    told: Json = {"type": kind, "quality": "low", "background": "auto"}
    engine = Engine(EngineId("cpu/sd"), make_entry("sd"), PoolId("cpu"), True, 1, "http://127.0.0.1:9", {})
    return ImageEvents(TaskCall({"events": told}, transport, engine, client))


def read(event: bytes) -> tuple[str, Any]:
    first, second, *rest = event.decode().split("\n")
    assert rest == ["", ""]
    return first.removeprefix("event: "), orjson.loads(second.removeprefix("data: "))


async def test_they_are_openai_s() -> None:
    client, transport = Said(), Transport()
    await events_to(client, transport, "image_generation").partial(PICTURE, 1)
    name, body = read(client.text)
    partial = ImageGenPartialImageEvent.model_validate(body, extra="forbid")
    assert (name, partial.type, partial.partial_image_index) == (partial.type, "image_generation.partial_image", 1)
    assert (partial.size, partial.output_format, partial.quality, partial.background) == (
        "96x64",
        "webp",
        "low",
        "auto",
    )
    assert base64.b64decode(partial.b64_json) == PICTURE

    client = Said()
    assert await events_to(client, transport, "image_edit").completed(PICTURE, last=False) == b""
    name, body = read(client.text)
    completed = ImageEditCompletedEvent.model_validate(body, extra="forbid")
    assert (name, completed.type, completed.usage.total_tokens) == (completed.type, "image_edit.completed", 0)
    await transport.close()


async def test_a_part_of_the_last_one_is_kept_for_the_end() -> None:
    client, transport = Said(), Transport()
    ending = await events_to(client, transport, "image_generation").completed(PICTURE, last=True)
    assert client.started
    assert read(client.text + ending)[0] == "image_generation.completed"
    await transport.close()


async def test_what_is_no_image_is_not_sent() -> None:
    client, transport = Said(), Transport()
    events = events_to(client, transport, "image_generation")
    with pytest.raises(EngineFailed, match="cpu/sd answered with a file that is no PNG"):
        await events.partial(b"<html>", 0)
    assert not client.started
    await transport.close()
