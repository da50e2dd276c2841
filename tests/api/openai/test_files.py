"""`/v1/files` through the client library, on a real front: metadata, lists, bytes, deletion, and whose they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import openai
import pytest

from infra.file_rows import GENERATED, NewFile
from infra.types import KeyName
from tests.api.conftest import Front, StartFront

LINES = b'{"custom_id": "a"}\n' * 3


@asynccontextmanager
async def client(front: Front, scope: str = "user") -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key=front.keys[scope], max_retries=0) as made:
        yield made


def kept(front: Front) -> list[Path]:
    """What lies in the store."""
    return [path for path in front.settings.at("files").rglob("*") if path.is_file()]


async def test_from_upload_to_deletion(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        made = await mine.files.create(file=("in put.jsonl", LINES), purpose="user_data")
        assert (made.object, made.bytes, made.filename) == ("file", len(LINES), "in put.jsonl")
        assert (made.purpose, made.status, made.expires_at) == ("user_data", "processed", None)
        assert made.id.startswith("file-")
        assert await mine.files.retrieve(made.id) == made
        answer = await mine.files.content(made.id)
        assert answer.content == LINES
        assert answer.response.headers["content-disposition"].startswith("attachment")
        assert answer.response.headers["x-content-type-options"] == "nosniff"
        assert [file.id async for file in mine.files.list()] == [made.id]
        assert (await mine.files.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError) as caught:
            await mine.files.retrieve(made.id)
        assert caught.value.code == "file_not_found"
        with pytest.raises(openai.NotFoundError):
            await mine.files.content(made.id)
    assert kept(front) == []


async def test_expiry_is_openais(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        batch = await mine.files.create(file=("a", b"1"), purpose="batch")
        assert batch.expires_at == batch.created_at + 30 * 86_400
        hour = await mine.files.create(
            file=("a", b"1"), purpose="vision", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert hour.expires_at == hour.created_at + 3600
        with pytest.raises(openai.BadRequestError) as caught:
            await mine.files.create(
                file=("a", b"1"), purpose="vision", expires_after={"anchor": "created_at", "seconds": 60}
            )
        assert caught.value.param == "expires_after"


async def test_pages_of_the_list(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        ids = []
        for number in range(5):
            purpose: Literal["batch", "assistants"] = "batch" if number % 2 else "assistants"
            ids.append((await mine.files.create(file=(f"{number}", b"x"), purpose=purpose)).id)
            await asyncio.sleep(0.002)  # their order is that of their milliseconds
        assert [file.id async for file in mine.files.list(limit=2)] == ids[::-1]
        assert [file.id async for file in mine.files.list(limit=2, order="asc")] == ids
        assert [file.id async for file in mine.files.list(purpose="batch", order="asc")] == ids[1::2]
        page = await mine.files.list(limit=2, after=ids[3])
        assert ([file.id for file in page.data], page.has_more) == ([ids[2], ids[1]], True)
    for query in ("limit=0", "limit=10001", "order=up", "after=x", "limit=x", "colour=red"):
        status, body = await front.get(f"/v1/files?{query}")
        assert (status, body["error"]["type"]) == (400, "invalid_request_error"), query


async def test_a_key_sees_its_own_and_an_admin_all(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine, client(front, "node") as other, client(front, "admin") as admin:
        made = await mine.files.create(file=("secret.txt", b"mine"), purpose="user_data")
        assert [file.id async for file in other.files.list()] == []
        for reach in (other.files.retrieve, other.files.content, other.files.delete):
            with pytest.raises(openai.NotFoundError):
                await reach(made.id)
        assert [file.id async for file in admin.files.list()] == [made.id]
        assert (await admin.files.content(made.id)).content == b"mine"
        twin = await other.files.create(file=("same.txt", b"mine"), purpose="user_data")
        assert len(kept(front)) == 1  # the same content, once
        await mine.files.delete(made.id)
        assert (await other.files.content(twin.id)).content == b"mine"
    assert (await front.get("/v1/files", None))[0] == 401
    assert (await front.get(f"/v1/files/{made.id}/content", None))[0] == 401


@pytest.mark.parametrize("file", ["file-", "file-0", "nope", "..", "%2e%2e%2fx", "file-%00", "a" * 3000])
async def test_ids_that_nobody_has(start_front: StartFront, file: str) -> None:
    front = await start_front()
    for path in (f"/v1/files/{file}", f"/v1/files/{file}/content"):
        status, body = await front.get(path)
        assert (status, body["error"]["type"]) == (404, "invalid_request_error")


async def test_a_range_of_the_bytes(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        made = await mine.files.create(file=("a.bin", bytes(range(100))), purpose="user_data")
    headers = front.headers() | {"Range": "bytes=10-19"}
    async with front.session.get(f"{front.url}/v1/files/{made.id}/content", headers=headers) as answer:
        assert (answer.status, await answer.read()) == (206, bytes(range(10, 20)))


async def test_generated_files_are_in_no_list(start_front: StartFront) -> None:
    front = await start_front()
    files = front.services.files.files
    incoming = files.begin(KeyName("user"), 10)
    incoming.write(b"x")
    files.add(incoming, NewFile(KeyName("user"), "a.png", GENERATED))
    assert (await front.get("/v1/files"))[1]["data"] == []
