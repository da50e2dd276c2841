"""Forms in pieces: what of them is announced, how they are gathered, where their file goes."""

import pytest

from api.asgi import CLIENT_EXTENSION, Client, ClientGone, Exchange, Message
from api.media.intake import announced_bytes, received
from infra.errors import InvalidRequest, PayloadTooLarge

HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
TAIL = b"\r\n--x--\r\n"


def exchange_of(messages: list[Message], length: str | None = None) -> Exchange:
    waiting = list(messages)

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(_message: Message) -> None:
        raise AssertionError("nothing is to be answered")

    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    headers += [] if length is None else [(b"content-length", length.encode())]
    scope = {"path": "/", "headers": headers, "extensions": {CLIENT_EXTENSION: Client()}}
    return Exchange(scope, receive, send)


def body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


async def test_small_pieces_are_gathered_and_large_ones_passed_on() -> None:
    large, written = bytes(300 << 10), []
    messages = [body(HEAD, more=True), body(large, more=True), body(b"b", more=True), body(TAIL, more=False)]
    form = await received(exchange_of(messages), "file", lambda data: written.append(bytes(data)))
    assert (form.has_file, form.filename) == (True, "a.wav")
    assert [len(piece) for piece in written] == [len(large), 1]


async def test_a_client_that_leaves() -> None:
    with pytest.raises(ClientGone):
        await received(exchange_of([body(HEAD, more=True), {"type": "http.disconnect"}]), "file", bytearray().extend)


async def test_a_form_that_breaks_off() -> None:
    with pytest.raises(InvalidRequest, match="ends before its last boundary"):
        await received(exchange_of([body(HEAD, more=False)]), "file", bytearray().extend)


@pytest.mark.parametrize(("length", "announced"), [(None, 0), ("70000", 70000 - 65536), ("1", 0), ("²", 0), ("x", 0)])
def test_what_a_body_says_of_its_length(length: str | None, announced: int) -> None:
    assert announced_bytes(exchange_of([], length), 1 << 20, "") == announced


def test_too_much_is_not_read_at_all() -> None:
    with pytest.raises(PayloadTooLarge, match="over the limit of 1048576 bytes: send less"):
        announced_bytes(exchange_of([], str(2 << 20)), 1 << 20, "send less")
