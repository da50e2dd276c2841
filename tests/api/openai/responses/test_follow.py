"""Following a response in the background, on a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.openai.responses.follow import Follower
from api.openai.responses.store import Whose
from api.openai.responses.tail import Tail
from infra import response_events
from infra.types import KeyName, ResponseId
from tests.api.openai.responses.conftest import Background

WHOLE = [
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that follow each other at once; silence is noticed soon, and with it a client that has left."""
    monkeypatch.setattr(Follower.__init__, "__defaults__", (0.01, 0.1))


async def rest(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


async def test_one_that_is_over_is_told_from_any_event_on(background: Background) -> None:
    response = await background.begun()
    background.answer(response.id)
    events = await rest(await background.client.responses.retrieve(response.id, stream=True))
    assert [event.type for event in events] == WHOLE
    assert [event.sequence_number for event in events] == list(range(len(WHOLE)))
    assert events[-1].response.output_text == "Hello."
    later = await background.client.responses.retrieve(response.id, stream=True, starting_after=4)
    assert [event.type for event in await rest(later)] == WHOLE[5:]
    beyond = await background.client.responses.retrieve(response.id, stream=True, starting_after=400)
    assert await rest(beyond) == []


async def test_it_is_followed_from_its_beginning(background: Background) -> None:
    asked: dict[str, Any] = {"model": "tiny", "input": "hi", "background": True, "stream": True}
    stream = await background.client.responses.create(**asked)
    assert stream.response.headers["content-type"].startswith("text/event-stream")
    events = aiter(stream)
    first = await anext(events)
    assert (first.type, first.response.status, first.response.background) == ("response.created", "queued", True)
    assert stream.response.headers["x-coderai-run"] == background.run(first.response.id)["id"]
    assert (await anext(events)).type == "response.queued"
    background.answer(first.response.id)
    assert [event.type for event in await rest(events)] == WHOLE[2:]


async def test_its_text_comes_while_it_is_made_also_to_one_who_was_cut_off(background: Background) -> None:
    response = await background.begun()
    telling = background.telling(response.id)
    stream = await background.client.responses.retrieve(response.id, stream=True)
    events = aiter(stream)
    heard: list[Any] = []
    for text in ("Hel", "lo"):
        telling.say(text)
        while not heard or getattr(heard[-1], "delta", "") != text:
            heard.append(await anext(events))
        assert (await background.client.responses.retrieve(response.id)).status == "in_progress"
    await stream.close()
    telling.say(", ", "you.")
    later = await background.client.responses.retrieve(
        response.id, stream=True, starting_after=heard[-1].sequence_number
    )
    telling.answer()
    heard += await rest(later)
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
    assert "".join(event.delta for event in heard if hasattr(event, "delta")) == "Hello, you."
    assert heard[-1].response == await background.client.responses.retrieve(response.id)


async def test_openai_s_own_reader_understands_what_is_made_anew(background: Background) -> None:
    """It is strict about items that are not closed, and about their indexes."""
    response = await background.begun()
    telling = background.telling(response.id)
    telling.say("Hel")
    telling.begin()
    telling.say("No", ".")
    async with background.client.responses.stream(response_id=response.id) as stream:
        telling.answer()
        texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        assert (await stream.get_final_response()).output_text == "No."
    assert texts == ["Hel", "No", "."]


async def test_a_follower_who_does_not_read_is_not_read_for(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection holds some megabytes; of more than that nothing is looked at."""
    looks, look = [], Tail.look

    def counted(tail: Tail) -> bytes:
        looks.append(tail.number)
        return look(tail)

    monkeypatch.setattr(Tail, "look", counted)
    monkeypatch.setattr(response_events, "READ_BYTES", 64 << 10)
    response, front = await background.begun(), background.flows.front
    background.telling(response.id).say(*["x" * 50_000] * 300)
    head = f"GET /v1/responses/{response.id}?stream=true HTTP/1.1\r\nHost: front\r\n"
    head += f"Authorization: Bearer {front.keys['user']}\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", front.port))
        await asyncio.get_running_loop().sock_sendall(client, head.encode())
        async with asyncio.timeout(20):
            before = 0
            while not before or len(looks) > before:
                before = len(looks)
                await asyncio.sleep(0.3)
    assert looks[-1] < 300


async def test_a_follower_that_leaves_ends_nothing(background: Background) -> None:
    asked: dict[str, Any] = {"model": "tiny", "input": "hi", "background": True, "stream": True}
    stream = await background.client.responses.create(**asked)
    begun = await anext(aiter(stream))
    await stream.close()
    front = background.flows.front.services
    async with asyncio.timeout(10):
        while front.accounting.active:
            await asyncio.sleep(0.01)
    assert (await background.client.responses.retrieve(begun.response.id)).status == "queued"
    assert background.run(begun.response.id)["state"]["type"] == "SCHEDULED"


async def test_silence_is_filled_with_comments(background: Background) -> None:
    response = await background.begun()
    whose = Whose(KeyName("user"))
    follower = Follower(background.flows.front.services, whose, ResponseId(response.id), 0.01, 0.02)
    events = follower.events(1)
    assert (await anext(events)).startswith(b":")
    background.answer(response.id)
    assert any(b"response.completed" in event for event in await rest(events))


async def test_one_that_is_deleted_meanwhile_says_so(background: Background) -> None:
    response = await background.begun()
    stream = await background.client.responses.retrieve(response.id, stream=True)
    events = aiter(stream)
    await anext(events)
    background.rows.forget(ResponseId(response.id))
    last = (await rest(events))[-1]
    assert (last.type, last.code) == ("error", "not_found")


async def test_a_front_that_is_ending_lets_its_followers_go(background: Background) -> None:
    response = await background.begun()
    stream = await background.client.responses.retrieve(response.id, stream=True)
    background.flows.front.services.fleet.draining = True
    assert [event.type for event in await rest(stream)] in ([], WHOLE[:2])


async def test_a_number_that_is_none(background: Background) -> None:
    response = await background.begun()
    status, body = await background.flows.front.get(f"/v1/responses/{response.id}?stream=true&starting_after=-1")
    assert (status, body["error"]["param"]) == (400, "starting_after")
