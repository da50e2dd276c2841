"""What a job tells while it makes a response, and what is left of it whatever happens."""

import asyncio
import contextlib
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

from flows.job_events import JobEvents, open_events
from infra import response_events
from infra.response_events import ResponseEvents
from infra.types import ResponseId
from tasks.responses.answer import begun
from tasks.responses.events import Events
from tests.infra.disks import small_disk as small_disk

ONE = ResponseId("resp_1")


@pytest.fixture
def events(tmp_path: Path) -> ResponseEvents:
    return ResponseEvents(tmp_path)


@pytest.fixture
def paused_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are made; they take no time."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return made


async def opened(events: ResponseEvents) -> JobEvents:
    channel = await open_events(events, ONE)
    assert channel is not None
    return channel


def chunk(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def stream(*texts: str) -> list[bytes]:
    """The pieces of a response's stream, the last of which ends its item."""
    told = Events(begun({}))
    first = told.begin()
    return [first + told.chunk(chunk(texts[0])), *(told.chunk(chunk(text)) for text in texts[1:]), told.finish()]


def lines(events: ResponseEvents) -> list[Any]:
    return [orjson.loads(line) for line in events.read(ONE, 0).data.splitlines()]


def words(events: ResponseEvents) -> list[str]:
    """The pieces of text and the kinds of other events."""
    return [line if isinstance(line, str) else line["type"].removeprefix("response.") for line in lines(events)]


HELLO = ["output_item.added", "content_part.added", "Hel", "lo."]
ENDED = ["output_text.done", "content_part.done", "output_item.done"]


async def test_what_comes_is_there_at_once(events: ResponseEvents) -> None:
    channel = await opened(events)
    *pieces, end = stream("Hel", "lo.")
    await channel.write(pieces[0])
    assert words(events) == HELLO[:3]
    await channel.write(pieces[1])
    assert (words(events), channel.started) == (HELLO, False)
    await channel.write(end)
    assert words(events) == HELLO + ENDED
    assert channel.size_bytes == len(events.read(ONE, 0).data)
    await channel.close(over=True)
    assert events.read(ONE, 0).closed


async def test_pieces_are_gathered_longer_the_longer_it_lasts(events: ResponseEvents, paused_s: list[float]) -> None:
    seconds = count()
    channel = await opened(events)
    channel._clock = lambda: next(seconds) / 2
    for piece in stream(*"abcdef"):
        await channel.write(piece)
    assert paused_s == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.2, 0.2]), "and not at all at its end"
    await channel.close(over=True)


async def test_another_try_goes_on_after_the_first(events: ResponseEvents) -> None:
    channel = await opened(events)
    await channel.write(stream("Hel")[0])
    await channel.close(over=False)
    with (events._root / ONE).open("ab") as file:
        file.write(b'"torn"')
    again = await opened(events)
    for piece in stream("No."):
        await again.write(piece)
    await again.close(over=True)
    assert words(events) == [
        *HELLO[:3],
        "output_item.done",
        "in_progress",
        *HELLO[:2],
        "No.",
        *ENDED,
    ]
    assert lines(events)[3]["item"]["status"] == "incomplete"
    assert lines(events)[5]["output_index"] == 1


async def test_an_engine_that_breaks_off_is_followed_by_another(events: ResponseEvents) -> None:
    """Within one job."""
    channel = await opened(events)
    await channel.write(stream("Hel")[0])
    await channel.write(stream("No.")[0])
    assert words(events) == [*HELLO[:3], "output_item.done", "in_progress", *HELLO[:2], "No."]
    await channel.close(over=True)


async def test_without_room_it_is_only_not_told(
    events: ResponseEvents, paused_s: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = await opened(events)
    first, *others = stream(*"abcdefghij")
    await channel.write(first)
    monkeypatch.setattr(response_events, "MOST_BYTES", channel.size_bytes)
    assert len(paused_s) == 1
    for piece in others:
        await channel.write(piece)
    assert len(paused_s) == 1, "and none after what is not told"
    assert words(events) == [*HELLO[:2], "a"]
    assert caplog.text.count("cannot be kept any more") == 1
    await channel.close(over=True)


async def test_a_disk_without_room_for_anything(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    channel = await open_events(ResponseEvents(small_disk), ONE)
    if channel is not None:  # an empty file takes no room
        await channel.write(stream("a")[0])
        await channel.close(over=True)
    assert "cannot be kept" in caplog.text


async def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / response_events.FOLDER).write_text("in the way")
    assert await open_events(ResponseEvents(tmp_path), ONE) is None
    assert "cannot be kept" in caplog.text


async def test_a_job_that_is_cancelled_in_the_midst(events: ResponseEvents) -> None:
    channel = await opened(events)
    for piece in stream(*"abc")[:3]:
        await channel.write(piece)
    channel._clock = lambda: 1e9
    waiting = asyncio.create_task(channel.write(stream("d")[0]))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await channel.close(over=True)
    await channel.close(over=True)
    assert events.read(ONE, 0).closed
