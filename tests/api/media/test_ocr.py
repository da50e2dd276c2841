"""Documents over HTTP: to the disk, in parts to an engine, and away again."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import BodyPartReader, web

from api.openai.schemas.ocr import MAX_FILES
from tests.api.conftest import Front, StartFront
from tests.documents import drawn, encoded, huge_png, locked_pdf, pdf

pytestmark = pytest.mark.enable_socket
READER = {
    "name": "reader",
    "aliases": ["rapidocr"],
    "path": "/weights/reader",
    "format": "rapidocr",
    "capabilities": ["ocr"],
    "weights_bytes": 1000,
    "max_instances": 1,
}
PNG = encoded(drawn(("hello",), width=200))
PDF = pdf([drawn(("a",), width=100)] * 3)


class Reader:
    """An engine that finds on each page its number, and how many bytes its document has."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        spans: list[str] = []
        sizes: list[int] = []
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            data = await part.read()
            if part.filename is not None:
                sizes.append(len(data))
            elif part.name == "span":
                spans.append(data.decode())
        self.asked.append(spans)
        results = []
        for span, size in zip(spans, sizes, strict=True):
            first, last = map(int, span.split("-"))
            results.append({"pages": [{"page": page, "text": f"{page}:{size}"} for page in range(first, last + 1)]})
        return web.json_response({"results": results})


async def started(start_front: StartFront, reader: Reader, **sections: Any) -> Front:
    front = await start_front([READER, {"name": "talker", "service_url": "http://127.0.0.1:9"}], **sections)
    front.children.answer = reader.answer
    return front


async def send(front: Front, *files: tuple[str, bytes], path: str = "/v1/ocr", **fields: str) -> tuple[int, Any]:
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        form.add_field(name, value)
    for name, data in files:
        form.add_field("files" if path.endswith("batch") else "file", data, filename=name)
    async with front.session.post(front.url + path, data=form, headers=front.headers()) as answer:
        return answer.status, orjson.loads(await answer.read())


def kept(front: Front, *folders: str) -> list[Path]:
    return [path for folder in folders for path in front.settings.at(folder).rglob("*") if path.is_file()]


async def gone(front: Front) -> None:
    """Wait until no file of a request is left: it goes in the moment in which the answer is there."""
    for _ in range(200):
        if not (left := kept(front, "passing", "payloads", "jobs")):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(left)


async def test_a_form_is_read_and_nothing_of_it_stays(start_front: StartFront) -> None:
    reader = Reader()
    front = await started(start_front, reader, record={"payloads": "none"})
    status, body = await send(front, ("a.pdf", PDF), dpi="100")
    assert (status, body["num_pages"], body["filename"], body["engine"]) == (200, 3, "a.pdf", "rapidocr")
    assert body["text"] == "\n\n".join(f"{page}:{len(PDF)}" for page in (1, 2, 3))
    assert reader.asked == [["1-3"]]
    await gone(front)


async def test_documents_are_kept_with_a_run_that_is(start_front: StartFront) -> None:
    front = await started(start_front, Reader(), record={"payloads": "all"})
    assert (await send(front, ("a.png", PNG)))[0] == 200
    (blob,) = kept(front, "payloads")
    assert blob.read_bytes() == PNG
    assert kept(front, "passing") == []


async def test_a_batch_is_read_file_by_file(start_front: StartFront) -> None:
    reader = Reader()
    front = await started(start_front, reader)
    files = [("a.png", PNG), ("b.txt", b"text"), ("c.pdf", PDF), ("d.pdf", locked_pdf()), ("e.png", b"")]
    status, body = await send(front, *files, path="/v1/ocr/batch")
    assert status == 200
    assert [result["filename"] for result in body["results"]] == [name for name, _data in files]
    assert [result.get("num_pages") for result in body["results"]] == [1, None, 3, None, None]
    codes = [result["error"]["code"] for result in body["results"] if "error" in result]
    assert codes == ["unsupported_type", "password", "empty_file"]
    assert sorted(reader.asked) == [["1-1"], ["1-3"]]
    assert body["usage"] == {"pages": 4}


async def test_json_is_as_good_as_a_form(start_front: StartFront) -> None:
    front = await started(start_front, Reader())
    text = base64.b64encode(PNG).decode()
    status, body = await front.post("/v1/ocr", {"engine": "rapidocr", "file": {"data": text, "filename": "x.png"}})
    assert (status, body["text"], body["filename"]) == (200, f"1:{len(PNG)}", "x.png")
    status, body = await front.post("/v1/ocr/batch", {"files": [text, {"url": "http://127.0.0.1/x.png"}]})
    assert status == 200
    assert [result["filename"] for result in body["results"]] == ["file-1", "x.png"]
    assert body["results"][1]["error"]["message"].startswith("127.0.0.1 is at")


BAD_FILES: list[tuple[bytes, int, str]] = [
    (b"", 400, "empty_file"),
    (b"#EXTM3U\nfile:///etc/passwd", 400, "unsupported_type"),
    (huge_png(), 413, "too_many_pixels"),
    (locked_pdf(), 400, "password"),
    (PDF[:200], 400, "unreadable"),
]


@pytest.mark.parametrize(("data", "status", "code"), BAD_FILES)
async def test_a_bad_document_asks_no_engine(start_front: StartFront, data: bytes, status: int, code: str) -> None:
    reader = Reader()
    front = await started(start_front, reader, record={"payloads": "none"})
    got, body = await send(front, ("a.png", data))
    assert (got, body["error"]["code"], body["error"]["param"]) == (status, code, "file")
    assert front.children.started == []
    await gone(front)


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "file"),
        ({"file": "", "model": "reader"}, 400, "file"),
        ({"file": "/etc/passwd"}, 400, "file"),
        ({"file": {"path": "/etc/passwd"}}, 400, "file"),
        ({"file": "http://169.254.169.254/latest"}, 403, "file"),
        ({"file": "QUJD", "model": "nobody"}, 404, "model"),
        ({"file": "QUJD", "model": "talker"}, 501, None),
        ({"file": "QUJD", "dpi": 0}, 400, "dpi"),
        ({"file": "QUJD", "dpi": "many"}, 400, "dpi"),
        ({"file": "QUJD", "detect": "detector"}, 400, "detect"),
        ({"file": "QUJD", "schema": "invoice"}, 400, "schema"),
        ({"file": "QUJD", "blob": "sha256:" + "0" * 64}, 400, "blob"),
        ({"files": [{"blob": "sha256:" + "0" * 64, "pages": 1, "name": "x"}], "batch": False}, 400, "files"),
    ],
)
async def test_what_is_wrong_is_named(start_front: StartFront, body: dict[str, Any], status: int, param: str) -> None:
    front = await started(start_front, Reader())
    got, answer = await front.post("/v1/ocr", body)
    assert (got, answer["error"]["param"]) == (status, param), answer


async def test_too_many_files(start_front: StartFront) -> None:
    front = await started(start_front, Reader())
    status, body = await send(front, *[("a.png", PNG)] * 2)
    assert (status, body["error"]["param"]) == (400, "file")
    assert "/v1/ocr/batch" in body["error"]["message"]
    status, body = await front.post("/v1/ocr/batch", {"files": ["QUJD"] * (MAX_FILES + 1)})
    assert (status, body["error"]["param"]) == (400, "files")


async def test_an_install_without_such_a_model_says_so(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await front.post("/v1/ocr", {"file": "QUJD"})
    assert (status, body["error"]["code"]) == (501, "not_installed")
    status, body = await send(front, ("a.png", PNG), model="tiny")
    assert (status, body["error"]["code"]) == (400, "unsupported_model")


async def test_a_request_is_planned_without_its_documents(start_front: StartFront) -> None:
    front = await started(start_front, Reader())
    asked = {"model": "reader", "files": [{"name": "a.pdf", "pages": 20}]}
    status, body = await front.post("/v1/plan", {"endpoint": "ocr", "request": asked})
    assert status == 200
    assert [step["task"] for step in body["plan"]["steps"]] == ["ocr_part"] * 3 + ["merge_ocr"]
    for files in ([], "x", ["x"], [{"pages": 0}], [{"pages": 1, "blob": "x"}], [{"pages": 500}] * 3):
        request = {"model": "reader", "files": files}
        status, body = await front.post("/v1/plan", {"endpoint": "ocr", "request": request})
        assert (status, body["error"]["param"].split(".")[0]) == (400, "files")


@pytest.mark.parametrize("dpi", ["9" * 5000, "-1", "²"])
async def test_what_only_looks_like_a_number_in_a_form_is_told(start_front: StartFront, dpi: str) -> None:
    front = await started(start_front, Reader())
    status, body = await send(front, ("a.pdf", PDF), dpi=dpi)
    assert (status, body["error"]["param"]) == (400, "dpi")
