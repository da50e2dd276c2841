"""A connection to an engine, over real sockets: answers in any pieces, and bytes that are no answer."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from workers.connection import HEAD_MOST_BYTES, HELD_MOST_BYTES, KEEP_ALIVE, BrokenOff, Connection, engine_socket

pytestmark = pytest.mark.enable_socket

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

QUESTION = b"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
PLAIN = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\n{"a"\r\n3\r\n:1}\r\n0\r\nTrailer: t\r\n\r\n'


class Line:
    """A connection to a server that follows `talk`, and the pool it goes back to."""

    def __init__(self, connection: Connection, pool: list[Connection]) -> None:
        self.connection = connection
        self.pool = pool

    async def ask(self) -> tuple[int, bytes]:
        """A question and its whole answer; the connection is let go whatever comes."""
        try:
            await self.connection.ask(QUESTION)
            return self.connection.status, await self.connection.read()
        finally:
            self.connection.let_go()

    @property
    def kept(self) -> bool:
        """Whether the next question may go over it."""
        return bool(self.pool) and self.connection.kept(0.0)


@asynccontextmanager
async def line(talk: Talk) -> AsyncIterator[Line]:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    loop, pool = asyncio.get_running_loop(), list[Connection]()
    async with await asyncio.start_server(guarded, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        _transport, connection = await loop.create_connection(lambda: Connection(loop, pool), host, port)
        try:
            async with asyncio.timeout(20):
                yield Line(connection, pool)
        finally:
            connection.close()
            await asyncio.sleep(0)


async def until_closed(connection: Connection) -> None:
    while connection.kept(0.0):
        await asyncio.sleep(0.005)


def answers(*pieces: bytes, stays: bool = False) -> Talk:
    """Each question gets the same answer, sent in these pieces; it closes after the first unless it `stays`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readexactly(len(QUESTION))
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                if len(pieces) > 1:
                    await asyncio.sleep(0.002)  # each piece a read of its own
            if not stays:
                return

    return talk


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_an_answer_cut_anywhere(answer: bytes, size: int) -> None:
    pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
    async with line(answers(*pieces, stays=True)) as to:
        for _ in range(2):
            assert await to.ask() == (200, b'{"a":1}')
            assert to.kept


async def test_a_stream_comes_as_it_is_sent() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with line(answers(head, b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n", stays=True)) as to:
        await to.connection.ask(QUESTION)
        assert [await to.connection.piece() for _ in range(4)] == [b"one", b"two", b"", b""]
        to.connection.let_go()
        assert to.kept


async def test_an_interim_answer_is_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with line(answers(interim, PLAIN, stays=True)) as to:
        assert await to.ask() == (200, b'{"a":1}')
        assert to.kept


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body(status: int) -> None:
    async with line(answers(b"HTTP/1.1 %d No\r\n\r\n" % status, stays=True)) as to:
        assert await to.ask() == (status, b"")


@pytest.mark.parametrize(
    "head", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]
)
async def test_an_answer_without_a_length_ends_with_its_connection(head: bytes) -> None:
    async with line(answers(head, b'{"a"', b":1}")) as to:
        assert await to.ask() == (200, b'{"a":1}')
        assert not to.kept


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        PLAIN + b"H",
        PLAIN + PLAIN,
        PLAIN + b"\0\0",
    ],
)
async def test_a_connection_that_is_of_no_further_use(answer: bytes) -> None:
    """Its far end closes it, or has sent more than it was asked for: the answer is good, the next goes elsewhere."""
    async with line(answers(answer, stays=True)) as to:
        assert await to.ask() == (200, b'{"a":1}')
        assert not to.kept


async def test_bytes_that_come_unasked_are_nobody_s_answer() -> None:
    async with line(answers(PLAIN, b"", b"", PLAIN, stays=True)) as to:
        assert await to.ask() == (200, b'{"a":1}')
        assert to.kept
        await until_closed(to.connection)
        with pytest.raises(BrokenOff):
            await to.ask()


BROKEN = {
    "nothing": b"",
    "half a status": b"HTTP/1.1 2",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "another protocol of HTTP": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "only an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
    "half a body": PLAIN[:-1],
    "half a body of a closing one": PLAIN[:-1].replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
    "half a body of HTTP/1.0": PLAIN[:-1].replace(b"HTTP/1.1", b"HTTP/1.0"),
    "half a chunk": CHUNKED[: CHUNKED.index(b'"a"')],
    "no last chunk": CHUNKED[: CHUNKED.index(b"0\r\nTrailer")],
    "no end after the last chunk": CHUNKED[:-2],
    "a chunk longer than it says": CHUNKED.replace(b"4;", b"3;"),
    "a chunk without a length": CHUNKED.replace(b"4;x=y", b"z"),
    "two ways to end": CHUNKED.replace(b"Transfer", b"Content-Length: 7\r\nTransfer"),
    "two lengths": PLAIN.replace(b"Content", b"Content-Length: 9\r\nContent"),
    "a length that is none": PLAIN.replace(b": 7", b": seven"),
    "a negative length": PLAIN.replace(b": 7", b": -7"),
    "a length without end": PLAIN.replace(b": 7", b": 7" + b"0" * 30),
    "chunks within something else": CHUNKED.replace(b": chunked", b": chunked, gzip"),
    "a name with a space": PLAIN.replace(b"Length:", b"Length :"),
    "a header without a name": PLAIN.replace(b"Content-Length", b""),
    "lines without returns": PLAIN.replace(b"\r\n", b"\n"),
    "a NUL": PLAIN.replace(b"OK\r\n", b"OK\r\nX: \0\r\n"),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_what_is_no_whole_answer_is_taken_for_none(answer: bytes) -> None:
    async with line(answers(answer)) as to:
        with pytest.raises(BrokenOff, match=r".+"):
            await to.ask()
        assert not to.pool


async def test_a_head_without_end() -> None:
    async with line(answers(b"HTTP/1.1 200 OK\r\n", *[b"X: %b\r\n" % (b"x" * 8000)] * 12, stays=True)) as to:
        with pytest.raises(BrokenOff, match="over 64 KiB"):
            await to.ask()
    assert HEAD_MOST_BYTES < 12 * 8000


async def test_what_came_before_the_break_is_given_but_not_as_a_whole() -> None:
    async with line(answers(CHUNKED[: CHUNKED.index(b"3\r\n:1}")], b"no chunk")) as to:
        await to.connection.ask(QUESTION)
        assert await to.connection.piece() == b'{"a"'
        with pytest.raises(BrokenOff, match="not HTTP"):
            await to.connection.piece()
        to.connection.let_go()
        assert not to.kept


@pytest.mark.parametrize("late_s", [0, 0.05])
async def test_a_break_is_not_forgotten_until_somebody_looks(late_s: float) -> None:
    """The reader may be busy with its own client in the moment in which the engine dies."""
    async with line(answers(PLAIN[:-1])) as to:
        await to.connection.ask(QUESTION)
        await asyncio.sleep(late_s)
        with pytest.raises(BrokenOff):
            await to.connection.read()


async def test_an_engine_waits_for_a_slow_reader() -> None:
    size = 64 * 2**20
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readexactly(len(QUESTION))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 2**16):
            writer.write(b"x" * 2**16)
            await writer.drain()
            sent += 2**16
        await reader.read()

    async with line(pour) as to:
        await to.connection.ask(QUESTION)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < size / 2  # what the sockets of this system hold, and no more
        got, most = 0, 0
        while piece := await to.connection.piece():
            got, most = got + len(piece), max(most, len(piece))
        assert got == size
        assert most < 4 * HELD_MOST_BYTES
        to.connection.let_go()
        assert to.kept


def test_a_far_end_that_is_switched_off_is_noticed() -> None:
    """An answer may take hours; a machine that is not there any more will never give one."""
    with engine_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        asked_s = [made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in KEEP_ALIVE]
        assert asked_s == list(KEEP_ALIVE.values())
        assert len(asked_s) == 3


async def test_an_answer_without_an_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.connection.READ_MOST_BYTES", 1 << 20)
    left = asyncio.Event()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(QUESTION))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b" " * 2**16)
                await writer.drain()
        finally:
            left.set()

    async with line(pour) as to:
        with pytest.raises(BrokenOff, match="over 1 MiB"):
            await to.ask()
        await left.wait()
        assert not to.kept


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"])
async def test_who_is_cancelled_closes_the_connection(head: bytes) -> None:
    """That is how an engine learns that nobody waits any more."""
    left = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(QUESTION))
        writer.write(head)
        assert await reader.read() == b""
        left.set()

    async with line(wait) as to:
        asking = asyncio.create_task(to.ask())
        await asyncio.sleep(0.05)
        asking.cancel()
        await left.wait()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not to.kept


async def test_an_answer_that_comes_before_the_whole_question_is_one_but_the_last() -> None:
    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(10)

    async with line(hasty) as to:
        await to.connection.ask(QUESTION + b"x" * 64 * 2**20)
        assert to.connection.status == 413
        assert await to.connection.read() == b""
        to.connection.let_go()
        assert not to.kept


async def test_a_server_that_speaks_first_is_none() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PLAIN)
        await reader.read()

    async with line(greet) as to:
        await until_closed(to.connection)
        with pytest.raises(BrokenOff):
            await to.ask()
