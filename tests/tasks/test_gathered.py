"""A stream that is kept, on its way."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import EngineFailed
from infra.types import ChatId
from tasks.gathered import GatheredStream

OURS = ChatId("chatcmpl-ours")
USAGE: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
DONE = b"data: [DONE]\n\n"


def event(*choices: dict[str, Any], **more: Any) -> bytes:
    return b"data: " + json.dumps({"id": "theirs", "choices": list(choices)} | more).encode() + b"\n\n"


def piece(text: str, index: int = 0, end: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": {"content": text}, "finish_reason": end}


STREAM = [
    event(piece("Hel")),
    b": ping\n\n",
    event(piece("lo.")),
    event(piece("", end="stop")),
    event(usage=USAGE),
    DONE,
]


def read(sent: bytes) -> list[Any]:
    """The chunks among events."""
    data = [each.removeprefix(b"data: ") for each in sent.split(b"\n\n") if each.startswith(b"data: {")]
    return [json.loads(each) for each in data]


@settings(deadline=None)
@given(size=st.integers(min_value=1, max_value=sum(map(len, STREAM))))
def test_it_goes_on_under_our_id_but_for_its_end(size: int) -> None:
    stream, whole = GatheredStream(OURS, 1), b"".join(STREAM)
    passed = b"".join(stream.feed(whole[at : at + size]) for at in range(0, len(whole), size))
    ending = stream.finish()
    assert [chunk["choices"][0]["delta"]["content"] for chunk in read(passed)] == ["Hel", "lo."]
    assert b": ping\n\n" in passed
    assert [chunk["choices"] for chunk in read(ending)] == [[piece("", end="stop")], []]
    assert ending.endswith(DONE)
    assert {chunk["id"] for chunk in read(passed + ending)} == {OURS}
    answer: Any = stream.answer({})
    assert (answer["id"], answer["usage"], answer["object"]) == (OURS, USAGE, "chat.completion")
    assert answer["choices"][0]["message"]["content"] == "Hello."


def test_the_end_of_several_answers_is_that_of_the_last() -> None:
    stream = GatheredStream(OURS, 2)
    first, last = event(piece("a", 0, "stop")), event(piece("b", 1, "length"))
    assert read(stream.feed(first))
    assert stream.feed(last + DONE) == b""
    assert len(read(stream.finish())) == 1
    answer: Any = stream.answer(USAGE)
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "length"]
    assert answer["usage"] == USAGE


@pytest.mark.parametrize(
    ("stream", "choices", "whole"),
    [
        ([event(piece("a", end="stop"))], 1, True),  # a service that ends without the last word
        ([event(piece("a")), DONE], 1, True),  # one that gives no reason
        ([event(piece("a", end="stop")), DONE], 2, True),  # one that gives one answer, however many it is asked for
        ([event(piece("a"))], 1, False),
        ([event(piece("a", end="stop"))], 2, False),
        ([event(piece("a", 0, "stop"), piece("b", 1))], 1, False),
        ([DONE], 1, False),
        ([], 1, False),
        ([event(usage=USAGE), DONE], 1, False),
        ([event(piece("a")), b'data: {"error": {"message": "out of memory"}}\n\n', DONE], 1, False),
        ([event(piece("a", end="stop"), error=None), DONE], 1, True),
        ([event(piece("a", end="stop")), b'data: {"error": "late"}\n\n', DONE], 1, False),
        ([event(piece("a")), b"data: no json\n\n", DONE], 1, False),
        ([event(piece("a")), b"data: null\n\n", DONE], 1, True),
        ([event(piece("a", end="stop")), b"data: [DO"], 1, False),
        ([b"<html>a proxy's page</html>"], 1, False),
    ],
)
def test_only_what_came_whole_is_an_answer(stream: list[bytes], choices: int, whole: bool) -> None:
    gathered = GatheredStream(OURS, choices)
    sent = b"".join(map(gathered.feed, stream)) + gathered.finish()
    assert (gathered.answer({}) is not None) == whole
    assert sent.count(b"\n\n") == b"".join(stream).count(b"\n\n")
    for words in (b"out of memory", b"late", b"no json", b"null", b"[DO", b"<html>"):
        assert (words in sent) == (words in b"".join(stream))


def test_events_with_more_than_their_data_lose_nothing() -> None:
    stream = GatheredStream(OURS, 1)
    sent = stream.feed(b": hello\nid: 4\n" + event(piece("a")) + b"event: message\n" + event(piece("b")))
    assert [line for line in sent.split(b"\n") if line and not line.startswith(b"data:")] == [
        b": hello",
        b"id: 4",
        b"event: message",
    ]
    stream.feed(DONE)
    stream.finish()
    answer: Any = stream.answer({})
    assert answer["choices"][0]["message"]["content"] == "ab"


def test_an_event_that_is_nested_deeper_than_it_can_be_written_is_passed_on_and_not_kept() -> None:
    deep = b'data: {"choices": [], "x": ' + b"[" * 300 + b"]" * 300 + b"}\n\n"
    stream = GatheredStream(OURS, 1)
    assert stream.feed(event(piece("a")) + deep).endswith(deep)
    stream.feed(DONE)
    assert stream.answer({}) is None


def test_a_stream_without_measure_is_passed_on_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.gathered.MOST_BYTES", 1000)
    stream, pieces = GatheredStream(OURS, 1), [event(piece("x" * 80)) for _ in range(20)]
    ending = [event(piece("", end="stop")), event(usage=USAGE), DONE]
    sent = b"".join(map(stream.feed, [*pieces, *ending])) + stream.finish()
    assert sent.count(b"x" * 80) == 20
    assert [chunk.get("usage") for chunk in read(sent)[-2:]] == [None, USAGE]
    assert sent.endswith(DONE)
    assert stream.answer({}) is None


def test_what_each_chunk_repeats_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.gathered.MOST_BYTES", 1000)
    stream = GatheredStream(OURS, 1)
    for word in "abcd":
        stream.feed(event(piece(word), model="m" * 1000))
    stream.feed(event(piece("", end="stop"), model="m" * 1000) + DONE)
    answer: Any = stream.answer({})
    assert answer["choices"][0]["message"]["content"] == "abcd"


def test_an_event_without_end_is_refused() -> None:
    stream = GatheredStream(OURS, 1)
    with pytest.raises(EngineFailed, match="16 MiB"):
        stream.feed(b"data: " + b"x" * (16 * 2**20))
