"""What is new of a response in the background, look by look."""

import json
from typing import Any

import pytest

from api.openai.responses.store import Whose
from api.openai.responses.tail import Tail
from infra import response_events
from infra.errors import Conflict, NotFound
from infra.response_events import FOLDER
from infra.types import KeyName, ResponseId
from tests.api.openai.responses.conftest import Background

USER = Whose(KeyName("user"))
ERROR: dict[str, Any] = {"code": "server_error", "message": "it broke"}


def tail(background: Background, response: str, after: int = -1) -> Tail:
    front = background.flows.front
    return Tail(front.services.database, background.events, USER, ResponseId(response), after)


def seen(looking: Tail) -> list[Any]:
    """The events of the next look."""
    texts = looking.look().decode().split("\n\n")[:-1]
    return [json.loads(text.partition("\ndata: ")[2]) for text in texts]


def rest(looking: Tail) -> list[Any]:
    """The events of as many looks as it takes."""
    events: list[Any] = []
    while not looking.over:
        events += seen(looking)
    return events


def kinds(events: list[Any]) -> list[str]:
    return [event.get("delta") or event["type"].removeprefix("response.") for event in events]


ADDED = ["output_item.added", "content_part.added"]
DONE = ["output_text.done", "content_part.done", "output_item.done"]


async def test_it_is_told_as_it_is_made(background: Background) -> None:
    response = (await background.begun()).id
    looking = tail(background, response)
    assert kinds(seen(looking)) == ["created", "queued"]
    assert seen(looking) == []
    telling = background.telling(response)
    telling.say("Hel")
    assert kinds(seen(looking)) == ["in_progress", *ADDED, "Hel"], "before the row is looked at for its own sake"
    telling.say("lo", ".")
    assert (kinds(seen(looking)), looking.more, looking.over) == (["lo", "."], False, False)
    telling.answer()
    events = seen(looking)
    assert kinds(events) == [*DONE, "completed"]
    shown = await background.client.responses.retrieve(response)
    assert events[-1]["response"] == shown.to_dict(mode="json")
    assert (looking.over, looking.number) == (True, 12)


async def test_whoever_comes_gets_the_same_whenever(background: Background) -> None:
    response = (await background.begun()).id
    early, telling = tail(background, response), background.telling(response)
    telling.say(*"abc")
    events = seen(early)
    telling.say(*"def")
    telling.answer()
    events += rest(early)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for after in range(-1, len(events)):
        assert rest(tail(background, response, after)) == events[after + 1 :]
    assert rest(tail(background, response, 400)) == []


async def test_much_comes_in_several_looks(background: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_events, "READ_BYTES", 400)
    response = (await background.begun()).id
    telling = background.telling(response)
    telling.say(*"word " * 100)
    telling.answer()
    looking = tail(background, response)
    first = seen(looking)
    assert (looking.more, looking.over) == (True, False)
    events = first + rest(looking)
    assert "".join(event.get("delta", "") for event in events) == "word " * 100
    assert len(first) < len(events) / 4


async def test_what_was_not_told_comes_at_the_end_and_stays_so(background: Background) -> None:
    """The disk was full."""
    response = (await background.begun()).id
    telling = background.telling(response)
    telling.say("Hel")
    looking = tail(background, response)
    events = seen(looking)
    telling._writer.close(over=False)
    telling.say("lo.")
    telling.answer(told=False)
    events += rest(looking)
    assert kinds(events)[5:] == ["Hel", "lo.", *DONE, "completed"]
    assert rest(tail(background, response, 6)) == events[7:]


async def test_what_is_made_anew_is_told_as_such(background: Background) -> None:
    response = (await background.begun()).id
    telling = background.telling(response)
    telling.say("Hel")
    telling.begin()
    telling.say("No.")
    telling.answer()
    events = rest(tail(background, response))
    again = kinds(events).index("in_progress", 3)
    assert kinds(events)[again - 1 :] == ["output_item.done", "in_progress", *ADDED, "No.", *DONE, "completed"]
    assert events[again]["response"]["status"] == "in_progress"
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "No."
    assert rest(tail(background, response, again)) == events[again + 1 :]


async def test_an_answer_of_a_try_that_told_nothing(background: Background) -> None:
    """It was made anew while the disk was full."""
    response = (await background.begun()).id
    telling = background.telling(response)
    telling.say("Hel")
    telling.die()
    background.answer(response)
    events = rest(tail(background, response))
    assert kinds(events)[5:] == ["Hel", "output_item.done", "in_progress", *ADDED, "Hello.", *DONE, "completed"]
    assert events[7]["response"]["status"] == "in_progress"
    assert rest(tail(background, response, 7)) == events[8:]


@pytest.mark.parametrize("status", ["cancelled", "failed"])
async def test_nothing_is_added_to_what_has_ended(background: Background, status: Any) -> None:
    """Though the worker process has not heard of that yet."""
    response = (await background.begun()).id
    telling, looking = background.telling(response), tail(background, response)
    telling.say("Hel")
    events = seen(looking)
    background.rows.end(ResponseId(response), status, ERROR)
    events += rest(looking)
    telling.say("lo.")
    assert kinds(events)[5:] == ["Hel", "failed"]
    assert events[-1]["response"]["status"] == status
    assert rest(tail(background, response, 5)) == events[6:]


async def test_one_that_had_ended_and_is_begun_anew_is_another_stream(background: Background) -> None:
    response = (await background.begun()).id
    slow, telling = tail(background, response), background.telling(response)
    telling.say("Hel")
    seen(slow)
    background.rows.end(ResponseId(response), "failed", ERROR)
    telling._writer.close(over=True)
    background.telling(response).say("No.")
    with pytest.raises(Conflict, match="from its beginning"):
        slow.look()
    assert kinds(seen(tail(background, response)))[3:] == [*ADDED, "No."]


async def test_a_line_that_a_power_cut_tore_is_waited_for(background: Background) -> None:
    response = (await background.begun()).id
    telling, looking = background.telling(response), tail(background, response)
    telling.say("Hel")
    seen(looking)
    path = background.flows.front.settings.home / FOLDER / response
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0\0\0\n")
    assert (seen(looking), looking.more) == ([], False)
    path.write_bytes(whole + b'"lo"\n')
    assert kinds(seen(looking)) == ["lo"]
    path.write_bytes(path.read_bytes() + b"\0\n")
    background.rows.end(ResponseId(response), "cancelled")
    assert kinds(rest(looking)) == ["failed"]


async def test_one_that_is_deleted(background: Background) -> None:
    response = (await background.begun()).id
    looking = tail(background, response)
    seen(looking)
    background.rows.forget(ResponseId(response))
    with pytest.raises(NotFound):
        rest(looking)
