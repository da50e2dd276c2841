"""An engine's pages become an answer: in order, each file with its pages or its error."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, InvalidRequest, PayloadGone, PayloadTooLarge, UpstreamRefused
from infra.types import EngineId, Json, PoolId
from tasks.ocr import merge_documents, read_document, read_part
from tasks.types import TaskCall
from tests.fakes import make_entry
from workers.live import Engine
from workers.transport import Transport
from workers.types import Capability, ModelFormat

pytestmark = pytest.mark.enable_socket

ERROR: dict[str, Json] = {"message": "it is cut off", "code": "unreadable", "kind": "InvalidRequest"}


def page(number: int, text: str = "text") -> dict[str, Json]:
    return {"page": number, "width": 9, "height": 9, "text": text, "lines": [], "regions": []}


class Reader:
    """An engine on this loop: keeps what it is asked, answers what it is told to."""

    def __init__(self, home: Path) -> None:
        self.blobs = Blobs(home / "payloads")
        self.transport = Transport()
        self.url = ""
        self.results: Any = None
        self.status = 200
        self.fields: list[tuple[str, str]] = []
        self.files: list[tuple[str | None, bytes]] = []

    async def answer(self, request: web.Request) -> web.Response:
        assert request.path == "/v1/ocr"
        async for part in await request.multipart():
            assert not isinstance(part, web.Response)
            data = await part.read()  # type: ignore[union-attr]
            if part.filename is None:  # type: ignore[union-attr]
                self.fields.append((str(part.name), data.decode()))  # type: ignore[union-attr]
            else:
                self.files.append((part.filename, data))  # type: ignore[union-attr]
        return web.Response(body=orjson.dumps(self.results), status=self.status, content_type="application/json")

    def call(self, pieces: list[Json], **inputs: Json) -> TaskCall:
        entry = make_entry("m", format=ModelFormat.RAPIDOCR, capabilities=(Capability.OCR,))
        headers = {"Authorization": "Bearer k", "Content-Type": "application/json"}
        engine = Engine(EngineId("cpu/m"), entry, PoolId("cpu"), True, 1, self.url, headers)
        asked: dict[str, Json] = {"pieces": pieces, "dpi": 150, "layout": False, **inputs}
        return TaskCall(asked, self.transport, engine, None, (Blobs(self.blobs.root / "other"), self.blobs))

    def piece(self, data: bytes = b"doc", file: int = 0, first: int = 1, last: int = 1) -> dict[str, Json]:
        return {"file": file, "name": f"{file}.pdf", "blob": self.blobs.put(data), "first": first, "last": last}


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    made, app = Reader(tmp_path), web.Application()
    app.router.add_post("/v1/{path:.*}", made.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        made.url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


async def test_one_document_is_the_whole_answer(reader: Reader) -> None:
    reader.results = {"results": [{"pages": [page(1, "a"), page(2, "b")]}]}
    result = await read_document(reader.call([reader.piece(b"bytes", last=2)]))
    assert isinstance(result.value, bytes)
    body = orjson.loads(result.value)
    assert (body["engine"], body["num_pages"], body["text"], body["usage"]) == ("rapidocr", 2, "a\n\nb", {"pages": 2})
    assert (body["filename"], [each["page"] for each in body["pages"]]) == ("0.pdf", [1, 2])
    assert reader.fields == [("span", "1-2"), ("dpi", "150"), ("layout", "false")]
    assert reader.files == [("0.pdf", b"bytes")]


async def test_a_part_tells_its_errors_and_goes_on(reader: Reader) -> None:
    reader.results = {"results": [{"error": ERROR}, {"pages": [page(3)]}]}
    result = await read_part(reader.call([reader.piece(), reader.piece(b"other", 4, 3, 3)]))
    assert result.value == {
        "engine": "rapidocr",
        "pieces": [{"file": 0, "error": ERROR}, {"file": 4, "pages": [page(3)]}],
    }


@pytest.mark.parametrize(("kind", "error"), [("InvalidRequest", InvalidRequest), ("PayloadTooLarge", PayloadTooLarge)])
async def test_one_document_that_cannot_be_read_fails(reader: Reader, kind: str, error: type[Exception]) -> None:
    reader.results = {"results": [{"error": {**ERROR, "kind": kind}}]}
    with pytest.raises(error, match="cut off"):
        await read_document(reader.call([reader.piece()]))


@pytest.mark.parametrize("answer", [[], {}, {"results": []}, {"results": ["x"]}, {"results": [{"pages": 1}]}, "x"])
async def test_an_engine_that_makes_no_sense_has_failed(reader: Reader, answer: Json) -> None:
    reader.results = answer
    with pytest.raises(EngineFailed):
        await read_document(reader.call([reader.piece()]))


async def test_an_engine_s_refusals(reader: Reader) -> None:
    reader.results = {"error": {"message": "no", "code": "x"}}
    for status, error in ((400, UpstreamRefused), (500, EngineFailed)):
        reader.status = status
        with pytest.raises(error):
            await read_part(reader.call([reader.piece()]))


async def test_a_document_that_is_not_kept_is_gone(reader: Reader) -> None:
    piece = {**reader.piece(), "blob": "sha256:" + "0" * 64}
    with pytest.raises(PayloadGone):
        await read_part(reader.call([piece]))


def merging(files: list[Json], *parts: Json, batch: bool = True) -> TaskCall:
    inputs: dict[str, Json] = {"files": files, "batch": batch, "split": []}
    inputs |= {f"part-{number}": part for number, part in enumerate(parts, 1)}
    return TaskCall(inputs, None)  # type: ignore[arg-type]  # a merge asks nobody


def part(*pieces: Json) -> Json:
    return {"engine": "rapidocr", "pieces": list(pieces)}


async def merged(call: TaskCall) -> Any:
    result = await merge_documents(call)
    assert isinstance(result.value, bytes)
    return orjson.loads(result.value)


async def test_parts_are_put_together_in_order() -> None:
    files: list[Json] = [{"name": "a", "pages": 3}, {"name": "b", "error": ERROR}, {"name": "c", "pages": 1}]
    first = part({"file": 0, "pages": [page(1, "one"), page(2, "two")]})
    second = part({"file": 0, "pages": [page(3, "three")]}, {"file": 2, "error": ERROR})
    body = await merged(merging(files, first, second))
    one, two, three = body["results"]
    assert (one["index"], one["filename"], one["text"], one["num_pages"]) == (0, "a", "one\n\ntwo\n\nthree", 3)
    wanted = {"message": "it is cut off", "type": "invalid_request_error", "param": "file", "code": "unreadable"}
    assert two == {"index": 1, "filename": "b", "error": wanted}
    assert three == {"index": 2, "filename": "c", "error": wanted}
    assert body["usage"] == {"pages": 3}


async def test_more_than_nine_parts_come_in_order() -> None:
    parts = [part({"file": 0, "pages": [page(number, str(number))]}) for number in range(1, 13)]
    body = await merged(merging([{"name": "a", "pages": 12}], *parts, batch=False))
    assert body["text"].split() == [str(number) for number in range(1, 13)]
    assert (body["filename"], body["num_pages"]) == ("a", 12)


async def test_one_document_whose_later_page_is_damaged_fails() -> None:
    parts = [part({"file": 0, "pages": [page(1)]}), part({"file": 0, "error": ERROR})]
    with pytest.raises(InvalidRequest, match="cut off"):
        await merge_documents(merging([{"name": "a", "pages": 2}], *parts, batch=False))


@pytest.mark.parametrize("bad", ["x", {"pieces": "x"}, {"pieces": ["x"]}, {"pieces": [{"file": 9, "pages": []}]}])
async def test_a_part_that_makes_no_sense_fails(bad: Json) -> None:
    with pytest.raises(EngineFailed, match="send it again"):
        await merge_documents(merging([{"name": "a", "pages": 1}], bad))
