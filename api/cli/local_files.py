"""A request that names files of this machine, for a plan: what the planner has to know of them, not what is in them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from infra.errors import InvalidRequest
from infra.recordings import measure
from infra.types import Json
from workers.documents.opening import count_pages
from workers.documents.types import sniff


def described(endpoint: str, body: dict[str, Json]) -> dict[str, Json]:
    """The request with a description of each file in the place of its path.

    Raises:
        InvalidRequest: a file cannot be read, or is none that the endpoint takes.
        CoderAIError: it cannot be looked into.
    """
    describe = _KINDS.get(endpoint)
    return body if describe is None else describe(body)


def _recording(body: dict[str, Json]) -> dict[str, Json]:
    """Of a recording its length."""
    if not isinstance(body.get("file"), str):
        return body
    path = _path(body["file"])
    with path.open("rb") as file:
        seconds = asyncio.run(measure(file))
    return {**body, "file": {"name": path.name, "bytes": path.stat().st_size, "seconds": seconds}}


def _documents(body: dict[str, Json]) -> dict[str, Json]:
    """Of documents how many pages they have."""
    one, many = body.get("file"), body.get("files")
    given = many if isinstance(many, list) else [one]
    if not all(isinstance(each, str) for each in given):
        return body
    rest = {name: value for name, value in body.items() if name != "file"}
    return {**rest, "files": [_document(_path(each)) for each in given], "batch": one is None}


def _document(path: Path) -> Json:
    data = path.read_bytes()
    kind = sniff(data)
    if kind is None:
        raise InvalidRequest(f"{path} is neither an image nor a PDF", param="file")
    return {"name": path.name, "pages": count_pages(data, kind)}


def _path(given: Json) -> Path:
    path = Path(str(given)).expanduser()
    if not path.is_file():
        raise InvalidRequest(f"there is no file {path}: for a plan, a file is a path on this machine", param="file")
    return path


_KINDS: Final[dict[str, Callable[[dict[str, Json]], dict[str, Json]]]] = {
    "transcription": _recording,
    "ocr": _documents,
}
