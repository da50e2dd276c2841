"""Server-sent events in pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import EngineFailed
from tasks.corrections.events import HiddenUsage, MendedEvents, StreamMender, chunks_in
from tasks.corrections.types import Body, ChunkMender

STREAM = (
    b'data: null\n\n: ping\n\ndata: {"a":1,"choices":[{"x":"\xc3\xa9\\n\\n"}]}\n\ndata:{"a":2,"choices":[]}\r\n\r\n'
    b'data: {"error":{"message":"m"}}\n\ndata: [DONE]\n\n'
)


class Counted:
    """Adds a number to every chunk, and one chunk at the end."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._count = 0

    def chunk(self, chunk: Body) -> list[Body]:
        self._count += 1
        return [{**chunk, self._key: self._count}]

    def end(self) -> list[Body]:
        return [{"end": self._key}]


def sent(mender: StreamMender, stream: bytes, size: int) -> bytes:
    pieces = [mender.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
    return b"".join([*pieces, mender.finish()])


@settings(deadline=None)
@given(size=st.integers(min_value=1, max_value=len(STREAM)))
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    menders: list[ChunkMender] = [Counted("p"), Counted("q")]
    assert sent(MendedEvents(menders), STREAM, size) == (
        b": ping\n\n"
        b'data: {"a":1,"choices":[{"x":"\xc3\xa9\\n\\n"}],"p":1,"q":1}\n\n'
        b'data: {"a":2,"choices":[],"p":2,"q":2}\n\n'
        b'data: {"error":{"message":"m"}}\n\n'
        b'data: {"end":"p","q":3}\n\n'
        b'data: {"end":"q"}\n\n'
        b"data: [DONE]\n\n"
    )


@settings(deadline=None)
@given(size=st.integers(min_value=1, max_value=len(STREAM)))
def test_hidden_usage_takes_out_the_chunk_without_choices(size: int) -> None:
    expected = STREAM.replace(b'data:{"a":2,"choices":[]}\r\n\r\n', b"")
    assert sent(HiddenUsage(), STREAM, size) == expected


def test_an_event_that_was_cut_off_is_passed_on() -> None:
    mender = MendedEvents([])
    assert mender.feed(b'data: {"a":1}\n\ndata: {"b"') == b'data: {"a":1}\n\n'
    assert mender.finish() == b'data: {"b"'


def test_what_is_no_json_or_endless_is_the_engines_fault() -> None:
    with pytest.raises(EngineFailed):
        MendedEvents([]).feed(b"data: <html>\n\n")
    with pytest.raises(EngineFailed):
        MendedEvents([]).feed(b"x" * (17 * 2**20))


def test_chunks_of_a_whole_stream() -> None:
    assert list(chunks_in(b'data: null\n\n: ping\n\ndata: {"a":1}\n\ndata: [DONE]\n\n\n')) == [{"a": 1}]
    with pytest.raises(EngineFailed, match="broke off its answer: m"):
        list(chunks_in(STREAM))
