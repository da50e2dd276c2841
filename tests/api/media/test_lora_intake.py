"""Adapters over HTTP: three ways in, and none for what is no adapter."""

import asyncio
import base64
import hashlib
import io
import struct
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.api.conftest import Front, StartFront
from tests.tiny_loras import safetensors

pytestmark = pytest.mark.enable_socket
GOOD = safetensors()
REF = f"sha256:{hashlib.sha256(GOOD).hexdigest()}"
PATH = "/v1/loras/upload"


async def send(front: Front, data: Any, path: str = PATH, scope: str = "user", **headers: str) -> tuple[int, Any]:
    async with front.session.post(front.url + path, data=data, headers=front.headers(scope) | headers) as answer:
        return answer.status, orjson.loads(await answer.read())


def form(data: bytes, **fields: str) -> aiohttp.FormData:
    made = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        made.add_field(name, value)
    made.add_field("file", data, filename="style.safetensors")
    return made


def files(front: Front) -> list[Path]:
    return [path for path in front.settings.at("files").rglob("*") if path.is_file()]


async def test_there_are_three_ways_in(start_front: StartFront) -> None:
    front = await start_front()
    size = len(GOOD)
    assert await send(front, form(GOOD)) == (200, {"id": REF, "bytes": size, "existed": False})
    text = base64.b64encode(GOOD).decode()
    for body in ({"data": text}, {"file": f"data:application/octet-stream;base64,{text}"}):
        assert await front.post(PATH, body) == (200, {"id": REF, "bytes": size, "existed": True})
    assert await send(front, GOOD) == (200, {"id": REF, "bytes": size, "existed": True})
    (kept,) = files(front)
    assert kept.read_bytes() == GOOD
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_each_way_may_give_a_name(start_front: StartFront) -> None:
    front = await start_front()
    for name, sent in (("one", form(GOOD, name="one", base_model="sd15")), ("two", GOOD)):
        path = PATH if name == "one" else f"{PATH}?name=two&base_model=sd15"
        status, body = await send(front, sent, path)
        assert (status, body["name"]) == (200, name)
    text = base64.b64encode(GOOD).decode()
    assert (await front.post(PATH, {"data": text, "name": "three", "base_model": "sd15"}))[1]["name"] == "three"
    _status, listed = await front.get("/v1/loras")
    assert [(lora["name"], lora["base_model"]) for lora in listed["data"]] == [
        ("three", "sd15"),
        ("two", "sd15"),
        ("one", "sd15"),
    ]
    status, body = await send(front, safetensors(fill=b"\x02"), f"{PATH}?name=one")
    assert (status, body["error"]["param"]) == (409, "name")


BOMB = struct.pack("<Q", 2**62) + b"{" * 1000
PICKLE = b"\x80\x02cos\nsystem\n(S'true'\ntR." + b"\0" * 100


@pytest.mark.parametrize(
    "data", [b"", BOMB, PICKLE, b"PK\x03\x04" + b"\0" * 100, GOOD[:-5], GOOD + b"x", b"<html>" * 10]
)
async def test_what_is_no_adapter_is_refused_whichever_way_it_comes(start_front: StartFront, data: bytes) -> None:
    front = await start_front()
    ways: list[Any] = [form(data, name="style"), data]
    for way in ways:
        status, body = await send(front, way)
        assert (status, body["error"]["code"]) == (400, "not_a_lora")
    if data:
        status, body = await front.post(PATH, {"data": base64.b64encode(data).decode()})
        assert (status, body["error"]["code"]) == (400, "not_a_lora")
    assert files(front) == []
    assert (await front.get("/v1/loras"))[1]["data"] == []


async def test_a_bomb_is_refused_before_it_has_come(start_front: StartFront) -> None:
    front = await start_front()
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        yield BOMB
        while sent < 1 << 30:
            sent += 1 << 16
            yield b"{" * (1 << 16)

    try:
        status, body = await send(front, endless())
        assert (status, body["error"]["code"]) == (400, "not_a_lora")
    except aiohttp.ClientConnectionError:  # the answer may be lost where the client still sends
        pass
    assert sent < 64 << 20
    await gone(front)


async def gone(front: Front) -> None:
    for _ in range(200):
        if not files(front):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(files(front))


BODIES: list[tuple[Any, str]] = [
    ({}, "data"),
    ({"data": "AAAA", "url": "http://example.org/x"}, "data"),
    ({"data": 5}, "data"),
    ({"data": "no base64!"}, "data"),
    ({"data": "AAAA", "path": "/etc/passwd"}, "path"),
    ({"data": "AAAA", "name": "../x"}, "name"),
    ({"data": "AAAA", "name": ["x"]}, "name"),
    ({"data": "AAAA", "base_model": "a\nb"}, "base_model"),
    ({"url": "http://127.0.0.1:1/x.safetensors"}, "url"),
    ({"url": "http://[::ffff:10.0.0.1]/x"}, "url"),
    ({"url": "http://user:word@example.org/x"}, "url"),
]


@pytest.mark.parametrize(("body", "param"), BODIES)
async def test_what_is_wrong_with_a_request_is_named(start_front: StartFront, body: Any, param: str) -> None:
    front = await start_front()
    status, answer = await front.post(PATH, body)
    assert (status, answer["error"]["param"]) == (
        403 if "127.0.0.1" in str(body) or "ffff" in str(body) else 400,
        param,
    )
    assert files(front) == []


async def test_forms_and_queries_have_no_other_fields(start_front: StartFront) -> None:
    front = await start_front()
    empty = aiohttp.FormData(default_to_multipart=True)
    empty.add_field("name", "x")
    for sent, path, param in (
        (empty, PATH, "file"),
        (form(GOOD, purpose="batch"), PATH, "purpose"),
        (GOOD, f"{PATH}?key=x", "key"),
        (form(GOOD, name="upload"), PATH, "name"),
    ):
        status, body = await send(front, sent, path)
        assert (status, body["error"]["param"]) == (400, param)
    assert files(front) == []


async def test_a_large_one_is_refused_by_its_announcement(start_front: StartFront) -> None:
    front = await start_front(loras={"max_mb": 1})
    for sent in (b"x" * (2 << 20), safetensors({"a.lora_A.weight": (1, 1 << 19), "a.lora_B.weight": (1 << 19, 1)})):
        status, body = await send(front, io.BytesIO(sent))
        assert (status, body["error"]["code"]) == (413, "file_too_large")
        assert "loras.max_mb" in body["error"]["message"]
    assert files(front) == []


async def test_a_key_is_needed(start_front: StartFront) -> None:
    front = await start_front()
    async with front.session.post(front.url + PATH, data=GOOD) as answer:
        assert answer.status == 401
    async with front.session.get(front.url + PATH, headers=front.headers()) as answer:
        assert answer.status == 404
