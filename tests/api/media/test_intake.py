"""Bodies in pieces: what of them is announced."""

import pytest

from api.asgi import CLIENT_EXTENSION, Client, ClientGone, Exchange, Message
from api.media.intake import announced_bytes, pieces
from infra.errors import PayloadTooLarge


def exchange_of(messages: list[Message], length: str | None = None) -> Exchange:
    waiting = list(messages)

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(_message: Message) -> None:
        raise AssertionError("nothing is to be answered")

    headers = [] if length is None else [(b"content-length", length.encode())]
    scope = {"path": "/", "headers": headers, "extensions": {CLIENT_EXTENSION: Client()}}
    return Exchange(scope, receive, send)


def body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


async def test_small_pieces_are_gathered_and_large_ones_passed_on() -> None:
    large = bytes(300 << 10)
    exchange = exchange_of([body(b"a", more=True), body(large, more=True), body(b"b", more=False)])
    assert [len(piece) async for piece in pieces(exchange)] == [len(large) + 1, 1]


async def test_a_client_that_leaves() -> None:
    with pytest.raises(ClientGone):
        async for _piece in pieces(exchange_of([body(b"a", more=True), {"type": "http.disconnect"}])):
            pass


@pytest.mark.parametrize(("length", "announced"), [(None, 0), ("70000", 70000 - 65536), ("1", 0), ("²", 0), ("x", 0)])
def test_what_a_body_says_of_its_length(length: str | None, announced: int) -> None:
    assert announced_bytes(exchange_of([], length), 1 << 20) == announced


def test_too_much_is_not_read_at_all() -> None:
    with pytest.raises(PayloadTooLarge, match="over the limit of 1 MiB"):
        announced_bytes(exchange_of([], str(2 << 20)), 1 << 20)
