"""Reading documents: an engine's pages of some of their parts, and the answer that is made of all of them."""

import asyncio
import io
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from infra.blobs import Blobs
from infra.errors import EngineFailed, InvalidRequest, NotFound, PayloadGone, PayloadTooLarge
from infra.types import Json
from tasks.refusals import refusal
from tasks.types import TaskCall, TaskResult
from workers.transport import FilePart

PATH: Final = "/ocr"


async def read_document(call: TaskCall) -> TaskResult:
    """One document as a whole: the answer of `/v1/ocr`.

    Raises:
        InvalidRequest, PayloadTooLarge: the document cannot be read.
        EngineFailed: the engine died, or made no sense.
        PayloadGone: the document is not kept any more.
    """
    pieces, results = await _read(call)
    named = _object(pieces[0]).get("name")
    pages = _pages(results[0])
    answer = _answer(call.leased().entry.format.value, pages) | {"filename": named}
    return TaskResult(orjson.dumps(answer), units=len(pages))


async def read_part(call: TaskCall) -> TaskResult:
    """Some pages of some documents: `{engine, pieces: [{file, pages} | {file, error}]}`.

    Raises:
        EngineFailed, PayloadGone: as `read_document`; a document that cannot be read is no error of the part.
    """
    pieces, results = await _read(call)
    read: list[Json] = [
        {"file": _object(piece)["file"], **_object(result)} for piece, result in zip(pieces, results, strict=True)
    ]
    pages = sum(len(_list(_object(result).get("pages", []))) for result in results)
    return TaskResult({"engine": call.leased().entry.format.value, "pieces": read}, units=pages)


async def merge_documents(call: TaskCall) -> TaskResult:
    """The answer of `/v1/ocr/batch`, or of one document: its files in order, each with all its pages or its error.

    Raises:
        InvalidRequest, PayloadTooLarge: the one document cannot be read.
        EngineFailed: a part has no result that can be merged.
    """
    files = call.inputs["files"]
    assert isinstance(files, list)
    body = await asyncio.to_thread(_merged, files, call.inputs, batch=call.inputs["batch"] is True)
    return TaskResult(body)


async def _read(call: TaskCall) -> tuple[list[Json], list[Json]]:
    """What a part asks for, and what the engine answers, each in the order of the pieces."""
    pieces = call.inputs["pieces"]
    assert isinstance(pieces, list)
    engine, files = call.leased(), await asyncio.to_thread(_documents, pieces, call.stores)
    fields = [("span", f"{_object(piece)['first']}-{_object(piece)['last']}") for piece in pieces]
    fields += [("dpi", str(call.inputs["dpi"])), ("layout", "true" if call.inputs["layout"] else "false")]
    status, body = await call.transport.upload(engine, PATH, fields, *files)
    if status != 200:
        raise refusal(engine.id, PATH, status, body, ours=False)
    try:
        answer = _object(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise EngineFailed(f"{engine.id} did not answer in JSON") from error
    results = answer.get("results")
    if not isinstance(results, list) or len(results) != len(pieces):
        raise EngineFailed(f"{engine.id} did not read every document")
    return pieces, results


def _documents(pieces: Sequence[Json], stores: Sequence[Blobs]) -> list[FilePart]:
    parts = []
    for piece in map(_object, pieces):
        content = io.BytesIO(_content(str(piece["blob"]), stores))
        parts.append(FilePart("file", str(piece["name"]), "application/octet-stream", content))
    return parts


def _content(ref: str, stores: Sequence[Blobs]) -> bytes:
    for store in stores:
        try:
            return store.get(ref)
        except NotFound:
            continue
    raise PayloadGone("a document of this request is not kept any more: send it again")


def _merged(files: Sequence[Json], inputs: Mapping[str, Json], *, batch: bool) -> bytes:
    pages: list[list[Json]] = [[] for _ in files]
    failed: list[dict[str, Json] | None] = [_error_of(file) for file in files]
    number, engine = 1, None
    while f"part-{number}" in inputs:
        part = _object(inputs[f"part-{number}"])
        engine = part.get("engine")
        for piece in _list(part.get("pieces")):
            file = _object(piece).get("file")
            if not isinstance(file, int) or not 0 <= file < len(files):
                raise EngineFailed(f"part {number} of this request has no result that can be merged; send it again")
            pages[file] += _list(_object(piece).get("pages", []))
            failed[file] = failed[file] or _error_of(piece)
        number += 1
    if not batch:
        one = _pages({"error": failed[0]} if failed[0] else {"pages": pages[0]})
        return orjson.dumps(_answer(engine, one) | {"filename": _object(files[0])["name"]})
    results: list[Json] = []
    for index, file in enumerate(files):
        error = failed[index]
        read = {"error": _shown(error)} if error else _answer(engine, pages[index])
        results.append({"index": index, "filename": _object(file)["name"], **read})
    read_pages = sum(len(pages[index]) for index, error in enumerate(failed) if not error)
    return orjson.dumps({"object": "list", "results": results, "usage": {"pages": read_pages}})


def _answer(engine: Json, pages: Sequence[Json]) -> dict[str, Json]:
    text = "\n\n".join(str(_object(page)["text"]) for page in pages)
    return {
        "engine": engine,
        "num_pages": len(pages),
        "text": text,
        "pages": list(pages),
        "usage": {"pages": len(pages)},
    }


def _pages(result: Json) -> list[Json]:
    """The pages of one document's result.

    Raises:
        InvalidRequest, PayloadTooLarge: what the engine says of the document.
    """
    error = _error_of(result)
    if error is not None:
        kind = PayloadTooLarge if error.get("kind") == PayloadTooLarge.__name__ else InvalidRequest
        raise kind(str(error.get("message")), param="file", code=str(error.get("code")))
    return _list(_object(result).get("pages"))


def _error_of(result: Json) -> dict[str, Json] | None:
    error = _object(result).get("error")
    return error if isinstance(error, dict) else None


def _shown(error: dict[str, Json]) -> Json:
    """A file's error in OpenAI's shape."""
    return {
        "message": error.get("message"),
        "type": "invalid_request_error",
        "param": "file",
        "code": error.get("code"),
    }


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise EngineFailed("a part of this request has no result that can be merged; send it again")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise EngineFailed("a part of this request has no result that can be merged; send it again")
    return value
