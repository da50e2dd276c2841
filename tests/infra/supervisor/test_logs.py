"""Lines of children: cutting, masking, passing on without waiting."""

import json
import os

from infra.supervisor.logs import LINE_CHARACTERS, LineTail, StderrSink


def _tail(secrets: tuple[str, ...] = ()) -> tuple[LineTail, list[str]]:
    seen: list[str] = []
    return LineTail("x", lambda name, line: seen.append(f"{name}|{line}"), secrets), seen


def test_lines_are_put_together_from_any_pieces() -> None:
    tail, seen = _tail()
    for piece in (b"on", b"e\ntw", b"o\n\nthree"):
        tail.feed(piece)
    tail.end()
    assert seen == ["x|one", "x|two", "x|three"]


def test_the_last_twenty_are_kept() -> None:
    tail, seen = _tail()
    tail.feed(b"".join(b"%d\n" % number for number in range(100)))
    assert tail.lines == tuple(str(number) for number in range(80, 100))
    assert len(seen) == 100


def test_an_endless_line_is_cut_and_costs_no_memory() -> None:
    tail, _ = _tail()
    for _ in range(100):
        tail.feed(b"a" * 100_000)
    assert len(tail._open) <= 4 * LINE_CHARACTERS
    tail.feed(b"\nnext\n")
    assert tail.lines == ("a" * LINE_CHARACTERS, "next")


def test_terminal_control_and_bad_bytes_do_not_pass() -> None:
    tail, _ = _tail()
    tail.feed(b"\x1b[2Jcleared\xff\x9b\r\n")
    assert tail.lines == ("[2Jcleared\ufffd\ufffd",)


def test_secrets_are_masked() -> None:
    tail, _ = _tail(("key-12345",))
    tail.feed(b"started with key-12345 as key\n")
    assert tail.lines == ("started with [secret] as key",)


def test_a_reader_that_stopped_never_blocks_us() -> None:
    reading, writing = os.pipe()
    sink = StderrSink(writing, queue_lines=50)
    for number in range(5000):
        sink("x", f"{number} " + "y" * 1000)
    sink.close(0.1)
    os.close(reading)  # the writing thread meets a broken pipe and ends
    sink._thread.join(5)
    os.close(writing)
    assert not sink._thread.is_alive()
    assert sink._dropped > 0


def test_lines_come_out_with_their_names() -> None:
    reading, writing = os.pipe()
    sink = StderrSink(writing)
    sink("front", "up")
    sink("cpu/tiny", "ready")
    sink.close()
    os.close(writing)
    with os.fdopen(reading) as stream:
        assert stream.read() == "front: up\ncpu/tiny: ready\n"


def test_json_stays_json_and_the_rest_becomes_it() -> None:
    reading, writing = os.pipe()
    sink = StderrSink(writing, as_json=True)
    sink("front", '{"message": "up"}')
    sink("cpu/tiny", "E failed")
    sink.close()
    os.close(writing)
    with os.fdopen(reading) as stream:
        first, second = (json.loads(line) for line in stream)
    assert first == {"message": "up"}
    assert (second["logger"], second["message"]) == ("cpu/tiny", "E failed")
