"""`/v1/uploads` through the client library: parts, the order that makes the file, MD5, limits, and whose they are."""

import asyncio
import hashlib
import io

import openai
import pytest
from openai.types import Upload

from infra.types import UploadId
from tests.api.conftest import StartFront
from tests.api.openai.test_files import client, kept

WHOLE = bytes(range(256)) * 40


async def begun(mine: openai.AsyncOpenAI, size_bytes: int = len(WHOLE)) -> Upload:
    return await mine.uploads.create(bytes=size_bytes, filename="a.jsonl", mime_type="text/jsonl", purpose="fine-tune")


async def test_a_file_of_parts(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        upload = await begun(mine)
        assert (upload.object, upload.status, upload.bytes, upload.file) == ("upload", "pending", len(WHOLE), None)
        assert upload.expires_at == upload.created_at + 3600
        second = await mine.uploads.parts.create(upload.id, data=WHOLE[5000:])
        first = await mine.uploads.parts.create(upload.id, data=WHOLE[:5000])
        assert (first.object, first.upload_id) == ("upload.part", upload.id)
        done = await mine.uploads.complete(
            upload.id, part_ids=[first.id, second.id], md5=hashlib.md5(WHOLE).hexdigest()
        )
        assert done.status == "completed"
        assert done.file is not None
        assert (done.file.bytes, done.file.filename, done.file.purpose) == (len(WHOLE), "a.jsonl", "fine-tune")
        assert (await mine.files.content(done.file.id)).content == WHOLE
        assert len(kept(front)) == 1
        for late in (mine.uploads.cancel(upload.id), mine.uploads.parts.create(upload.id, data=b"x")):
            with pytest.raises(openai.BadRequestError) as caught:
                await late
            assert caught.value.code == "upload_completed"


async def test_the_client_s_own_way_with_a_file_in_chunks(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        done = await mine.uploads.upload_file_chunked(
            file=WHOLE, filename="b.bin", bytes=len(WHOLE), mime_type="x/y", purpose="user_data", part_size=4096
        )
        assert done.file is not None
        assert (await mine.files.content(done.file.id)).content == WHOLE


async def test_what_does_not_add_up(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        upload = await begun(mine, 10)
        part = await mine.uploads.parts.create(upload.id, data=b"12345")
        with pytest.raises(openai.BadRequestError, match="was to have 10 bytes"):
            await mine.uploads.parts.create(upload.id, data=b"123456")
        with pytest.raises(openai.BadRequestError, match="have 5 bytes together"):
            await mine.uploads.complete(upload.id, part_ids=[part.id])
        with pytest.raises(openai.BadRequestError, match="twice"):
            await mine.uploads.complete(upload.id, part_ids=[part.id, part.id])
        with pytest.raises(openai.BadRequestError, match="no part of"):
            await mine.uploads.complete(upload.id, part_ids=["part_x"])
        with pytest.raises(openai.BadRequestError):
            await mine.uploads.complete(upload.id, part_ids=[])
        other = await mine.uploads.parts.create(upload.id, data=b"67890")
        with pytest.raises(openai.BadRequestError) as caught:
            await mine.uploads.complete(upload.id, part_ids=[part.id, other.id], md5="0" * 32)
        assert (caught.value.param, caught.value.code) == ("md5", "md5_mismatch")
        done = await mine.uploads.complete(upload.id, part_ids=[other.id, part.id])
        assert done.file is not None
        assert (await mine.files.content(done.file.id)).content == b"6789012345"


async def test_cancelled(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        upload = await begun(mine, 5)
        await mine.uploads.parts.create(upload.id, data=b"12345")
        assert (await mine.uploads.cancel(upload.id)).status == "cancelled"
        assert kept(front) == []
        with pytest.raises(openai.BadRequestError) as caught:
            await mine.uploads.parts.create(upload.id, data=b"1")
        assert caught.value.code == "upload_cancelled"


async def test_another_key_s_upload(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine, client(front, "node") as other:
        upload = await begun(mine, 1)
        part = await mine.uploads.parts.create(upload.id, data=b"1")
        for reach in (
            other.uploads.parts.create(upload.id, data=b"1"),
            other.uploads.complete(upload.id, part_ids=[part.id]),
            other.uploads.cancel(upload.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await reach
        theirs = await begun(other, 1)
        with pytest.raises(openai.BadRequestError, match="no part of"):
            await other.uploads.complete(theirs.id, part_ids=[part.id])


async def test_two_that_complete_at_once_make_one_file(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        upload = await begun(mine, 5)
        part = await mine.uploads.parts.create(upload.id, data=io.BytesIO(b"12345"))
        both = await asyncio.gather(
            *(mine.uploads.complete(upload.id, part_ids=[part.id]) for _ in range(2)), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in both) == ["BadRequestError", "Upload"]
        assert len([file async for file in mine.files.list()]) == 1


async def test_bad_beginnings(start_front: StartFront) -> None:
    front = await start_front(files={"max_upload_mb": 1})
    good = {"bytes": 1, "filename": "a", "mime_type": "x/y", "purpose": "batch"}
    for change, status, param in (
        ({"bytes": 2 << 20}, 413, "bytes"),
        ({"bytes": -1}, 400, "bytes"),
        ({"filename": "../"}, 400, "filename"),
        ({"purpose": "party"}, 400, "purpose"),
        ({"mime_type": ""}, 400, "mime_type"),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, 400, "expires_after.seconds"),
        ({"more": 1}, 400, "more"),
    ):
        got, body = await front.post("/v1/uploads", good | change)
        assert (got, body["error"]["param"]) == (status, param), change
    status, body = await front.post(f"/v1/uploads/{UploadId('upload_x')}/cancel", None)
    assert (status, body["error"]["code"]) == (404, "upload_not_found")
