"""Our name in a far service's answers: whole, and in streams cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import EngineFailed
from tasks.renaming import RenamedEvents, renamer

RENAME = renamer("org/far", "ours")
EVENT = b'data: {"model":"org/far","choices":[{"delta":{"content":"\\"model\\":\\"org/far\\""}}]}'
RENAMED = EVENT.replace(b'"model":"org/far"', b'"model":"ours"')
STREAM = b"\n\n".join([EVENT, b": ping", EVENT, b"data: [DONE]", b""])


@pytest.mark.parametrize(
    ("answer", "renamed"),
    [
        (b'{"model":"org/far","id":1}', b'{"model":"ours","id":1}'),
        (b'{"model": "org/far"}', b'{"model":"ours"}'),
        (b'{"model":"org/far-2"}', b'{"model":"org/far-2"}'),
        (b'{"model":"else"}', b'{"model":"else"}'),
        (b'{"id":"org/far"}', b'{"id":"org/far"}'),
        (b'{"content":"\\"model\\":\\"org/far\\""}', b'{"content":"\\"model\\":\\"org/far\\""}'),
        (b"not JSON", b"not JSON"),
    ],
)
def test_the_model_s_name_alone_is_replaced(answer: bytes, renamed: bytes) -> None:
    assert RENAME(answer) == renamed


def test_names_that_json_escapes() -> None:
    assert renamer('a"b\\c', 'd"e')(b'{"model":"a\\"b\\\\c"}') == b'{"model":"d\\"e"}'
    assert renamer("modèle", "x")('{"model":"modèle"}'.encode()) == b'{"model":"x"}'


@given(size=st.integers(min_value=1, max_value=len(STREAM)), returns=st.booleans())
def test_pieces_of_any_size_give_the_same(size: int, returns: bool) -> None:
    stream = STREAM.replace(b"\n", b"\r\n") if returns else STREAM
    events = RenamedEvents(RENAME)
    out = b"".join(events.feed(stream[at : at + size]) for at in range(0, len(stream), size)) + events.finish()
    assert out == stream.replace(EVENT, RENAMED)
    assert out.count(b'"model":"ours"') == 2


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_an_event_is_not_held_back_for_the_next(end: bytes) -> None:
    events = RenamedEvents(RENAME)
    assert events.feed(EVENT + end) == RENAMED + end
    assert events.finish() == b""


def test_what_was_cut_off_still_comes() -> None:
    events = RenamedEvents(RENAME)
    assert events.feed(EVENT[:40]) == b""
    assert events.finish() == RENAMED[: 40 - len("org/far") + len("ours")]
    assert events.finish() == b""


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    events = RenamedEvents(RENAME)
    assert events.feed(b"x" * 2**20) == b""
    with pytest.raises(EngineFailed, match="more than 16 MiB"):
        events.feed(b"x" * 2**24)
