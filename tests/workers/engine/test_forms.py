"""Requests to the engine process: JSON and forms, within limits."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.errors import CoderAIError
from workers.engine import forms
from workers.engine.forms import read_ask
from workers.engine.runtimes.protocol import Ask

pytestmark = pytest.mark.enable_socket


class Reader:
    """A server that keeps what it has read, or why it could not."""

    def __init__(self) -> None:
        self.ask: Ask | None = None
        self.error: CoderAIError | None = None
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        try:
            self.ask = await read_ask(request, threading.Event())
        except CoderAIError as error:
            self.error = error
        return web.Response()

    async def post(self, **request: Any) -> None:
        self.ask = self.error = None
        async with aiohttp.ClientSession() as session, session.post(self.url, **request) as answer:
            assert answer.status == 200


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    made = Reader()
    app = web.Application(client_max_size=0)
    app.router.add_post("/", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.url = str(server.make_url("/"))
        yield made


async def test_json_is_an_object(reader: Reader) -> None:
    await reader.post(json={"a": [1]})
    assert reader.ask is not None
    assert (reader.ask.body, reader.ask.files) == ({"a": [1]}, ())
    for data in (b"[1]", b"", b"{"):
        await reader.post(data=data)
        assert reader.error is not None, data
        assert "JSON" in reader.error.message


async def test_a_form_has_fields_with_all_their_values_and_files(reader: Reader) -> None:
    form = aiohttp.FormData(quote_fields=False)
    for value in ("word", "segment"):
        form.add_field("granularities[]", value)
    form.add_field("file", b"\r\n--x\x00\xff", filename="a b.wav", content_type="audio/wav")
    await reader.post(data=form)
    assert reader.ask is not None
    assert reader.ask.body == {"granularities[]": ["word", "segment"]}
    (file,) = reader.ask.files
    assert (file.part, file.name, file.media_type, file.data) == ("file", "a b.wav", "audio/wav", b"\r\n--x\x00\xff")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x\r\n",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\ncut off',
        b"--x\r\n\r\nnameless\r\n--x--",
    ],
)
async def test_what_is_no_whole_form(reader: Reader, body: bytes) -> None:
    await reader.post(data=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert reader.error is not None


async def test_limits(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MOST_BYTES", 100)
    await reader.post(data=b"{" + b" " * 200 + b"}")
    assert reader.error is not None
    assert "over 100 bytes" in reader.error.message
    form = aiohttp.FormData()
    for _ in range(2):
        form.add_field("file", bytes(80), filename="a")
    await reader.post(data=form)
    assert reader.error is not None
    assert "over 20 bytes" in reader.error.message
    monkeypatch.setattr(forms, "MOST_PARTS", 1)
    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("a", "1")
    form.add_field("b", "2")
    await reader.post(data=form)
    assert reader.error is not None
    assert "more than 1 parts" in reader.error.message
