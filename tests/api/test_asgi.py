"""One exchange on plain ASGI: bodies in pieces and over the limit, answers, streams, clients that leave."""

import asyncio
import json
from typing import Any

import pytest

from api.asgi import (
    CLIENT_EXTENSION,
    Client,
    ClientGone,
    ClientWatch,
    EventStream,
    Exchange,
    Message,
    headers_by_name,
    parse_object,
)
from api.errors import Headers
from infra.errors import InvalidRequest, PayloadTooLarge, QueueFull

LIMIT_BYTES = 10


class Server:
    """An ASGI server's side: the messages that come in, and what was sent."""

    def __init__(self, *messages: Message, headers: Headers | None = None) -> None:
        self._messages = list(messages)
        self.sent: list[Message] = []
        self.client = Client()
        scope = {"path": "/x", "headers": headers or [], "extensions": {CLIENT_EXTENSION: self.client}}
        self.exchange = Exchange(scope, self.receive, self.send)

    async def receive(self) -> Message:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def part(body: bytes | None, *, more: bool = False) -> Message:
    message: dict[str, Any] = {"type": "http.request", "more_body": more}
    return message if body is None else message | {"body": body}


@pytest.mark.parametrize(
    ("messages", "body"),
    [
        ((part(b"hello"),), b"hello"),
        ((part(None),), b""),
        ((part(b"he", more=True), part(b"", more=True), part(b"llo")), b"hello"),
        ((part(None, more=True), part(b"01234", more=True), part(b"56789", more=True), part(None)), b"0123456789"),
        ((part(b"0123456789"),), b"0123456789"),
    ],
)
async def test_a_body_in_pieces(messages: tuple[Message, ...], body: bytes) -> None:
    assert await Server(*messages).exchange.body(LIMIT_BYTES) == body


@pytest.mark.parametrize(
    "messages",
    [
        (part(b"x" * 11),),
        (part(b"x" * 11, more=True),),
        (part(b"x" * 6, more=True), part(b"x" * 5)),
        (part(b"x" * 6, more=True), part(b"x" * 5, more=True)),
    ],
)
async def test_a_body_over_the_limit(messages: tuple[Message, ...]) -> None:
    server = Server(*messages)
    async with asyncio.timeout(1):  # nothing after the limit is waited for
        with pytest.raises(PayloadTooLarge, match="limit of 0 MiB"):
            await server.exchange.body(LIMIT_BYTES)


@pytest.mark.parametrize("claim", [b"11", b"99999999999999999999"])
async def test_a_claim_over_the_limit_is_refused_unread(claim: bytes) -> None:
    server = Server(headers=[(b"content-length", claim)])
    with pytest.raises(PayloadTooLarge):
        await server.exchange.body(LIMIT_BYTES)


@pytest.mark.parametrize("claim", [b"10", b"-1", b"", b"abc", b"\xb2\xb3", b"1e9"])
async def test_other_claims_are_left_to_the_bytes(claim: bytes) -> None:
    server = Server(part(b"hello"), headers=[(b"content-length", claim)])
    assert await server.exchange.body(LIMIT_BYTES) == b"hello"


@pytest.mark.parametrize("before", [(), (part(b"he", more=True),)])
async def test_a_client_that_leaves_before_its_body_is_there(before: tuple[Message, ...]) -> None:
    with pytest.raises(ClientGone):
        await Server(*before, {"type": "http.disconnect"}).exchange.body(LIMIT_BYTES)


async def test_an_answer() -> None:
    server = Server()
    await server.exchange.answer(201, b"{}", [(b"x-a", b"b")])
    start, body = server.sent
    assert (start["status"], start["headers"]) == (201, [(b"x-a", b"b"), (b"content-length", b"2")])
    assert (body["body"], body.get("more_body", False)) == (b"{}", False)
    assert (server.exchange.answered, server.exchange.status) == (True, 201)


async def test_a_failure_is_answered_in_openai_s_shape() -> None:
    server = Server()
    await server.exchange.fail(QueueFull("full", retry_after_s=3), [(b"x-coderai-run", b"r")])
    start, body = server.sent
    assert start["status"] == 503
    assert {(b"retry-after", b"3"), (b"x-coderai-run", b"r")} <= set(start["headers"])
    assert json.loads(body["body"])["error"]["code"] == "queue_full"


async def test_a_stream_s_head_leaves_with_the_first_bytes() -> None:
    server = Server()
    engine = "nowhere yet"
    stream = EventStream(server.exchange, lambda: [(b"x-coderai-engine", engine.encode())])
    await asyncio.sleep(0)
    assert server.sent == []
    assert (stream.started, stream.first_write_s, server.exchange.answered) == (False, None, False)
    engine = "cpu/m"
    await stream.write(b"data: 1\n\n")
    first_s = stream.first_write_s
    await asyncio.sleep(0.002)
    await stream.write(b"data: 2\n\n")
    await stream.end()
    start, *bodies = server.sent
    assert dict(start["headers"])[b"x-coderai-engine"] == b"cpu/m"
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert [(one["body"], one.get("more_body", False)) for one in bodies] == [
        (b"data: 1\n\n", True),
        (b"data: 2\n\n", True),
        (b"", False),
    ]
    assert (stream.first_write_s, server.exchange.status) == (first_s, 200)


async def test_who_works_is_cancelled_when_the_client_leaves() -> None:
    client = Client()

    async def work() -> bool:
        with ClientWatch(client) as watch:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return watch.gone
        return False

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    client.leave()
    async with asyncio.timeout(5):
        assert await working


async def test_a_client_that_has_left_already_is_not_worked_for() -> None:
    client = Client()
    client.leave()

    async def work() -> bool:
        with ClientWatch(client) as watch:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return watch.gone
        return False

    async with asyncio.timeout(5):
        assert await asyncio.create_task(work())


async def test_a_cancellation_of_somebody_else_is_not_the_client_s() -> None:
    client = Client()
    gone: list[bool] = []

    async def work() -> None:
        with ClientWatch(client) as watch:
            try:
                await asyncio.sleep(30)
            finally:
                gone.append(watch.gone)

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert gone == [False]


@pytest.mark.parametrize(("last", "cancelled"), [(b"data: {}\n\n", True), (b"data: [DONE]\n\n", False)])
async def test_a_client_that_has_its_whole_stream_may_leave(last: bytes, cancelled: bool) -> None:
    """Clients close at `[DONE]`: what is still to do then, such as counting, is done."""
    server = Server()

    async def work() -> bool:
        stream = EventStream(server.exchange, list)
        with ClientWatch(server.client, stream):
            try:
                await stream.write(last)
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                return True
        return False

    working = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    server.client.leave()
    assert await working is cancelled


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 5, 13, 14, 17, 40])
async def test_a_stream_is_finished_however_its_last_event_is_cut(end: bytes, size: int) -> None:
    stream = EventStream(Server().exchange, list)
    whole = b'data: {"a": 1}\n\n' + end
    for at in range(0, len(whole), size):
        assert not stream.finished
        await stream.write(whole[at : at + size])
    assert stream.finished
    await stream.write(b": more")
    assert not stream.finished


async def test_a_comment_finds_room_between_two_events_only() -> None:
    server = Server()
    stream = EventStream(server.exchange, list)
    assert server.client.aside() == b""
    for data, aside in ((b"data: 1\n\n", b":\n\n"), (b"data: {", b""), (b"}", b""), (b"\n", b""), (b"\n", b":\n\n")):
        await stream.write(data)
        assert server.client.aside() == aside


async def test_a_watch_ends_with_its_block() -> None:
    """The same connection's next request, or nobody, is cancelled."""
    client = Client()
    with ClientWatch(client) as watch:
        await asyncio.sleep(0)
    client.leave()
    await asyncio.sleep(0)
    assert not watch.gone


def test_headers_by_name() -> None:
    exchange = Server(headers=[(b"a", b"1"), (b"b", b"\xe9")]).exchange
    assert exchange.header(b"a") == "1"
    assert exchange.header(b"b") == "é"
    assert exchange.header(b"c") is None


def test_of_several_keys_none_is_taken() -> None:
    """Who stands before us may have checked the other one."""
    key, other = (b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")
    assert headers_by_name([(b"a", b"1"), key, (b"a", b"2")]) == {b"a": b"2", b"authorization": b"Bearer a"}
    assert headers_by_name([key, (b"a", b"1"), other]) == {b"a": b"1"}
    assert headers_by_name([key, key]) == {}
    assert Server(headers=[key, other]).exchange.header(b"authorization") is None


@pytest.mark.parametrize(
    ("body", "words", "code"),
    [
        (b"", "not JSON", "invalid_json"),
        (b"{", "not JSON", "invalid_json"),
        (b'{"a": NaN}', "not JSON", "invalid_json"),
        (b"\xff\xfe{\x00}\x00", "not JSON", "invalid_json"),
        (b"[" * 100_000, "not JSON", "invalid_json"),
        (b"[]", "must be a JSON object", "invalid_request"),
        (b"null", "must be a JSON object", "invalid_request"),
        (b'"text"', "must be a JSON object", "invalid_request"),
    ],
)
def test_what_is_no_object(body: bytes, words: str, code: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        parse_object(body)
    assert caught.value.code == code


def test_an_object() -> None:
    assert parse_object(b'{"a": [1, null]}') == {"a": [1, None]}
