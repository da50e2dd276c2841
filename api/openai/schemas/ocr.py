"""`POST /v1/ocr` and `/v1/ocr/batch`: what a client may send as JSON, and the request that both become."""

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.schemas.shared import STRICT, Body, User, check_known, validate
from infra.blobs import is_ref
from infra.errors import InvalidRequest
from infra.types import Json
from workers.documents.types import DEFAULT_DPI, DPI_RANGE, MAX_PAGES

MAX_FILES: Final = 100
MAX_REQUEST_PAGES: Final = 1000
"""Of all documents of one request."""

_Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
_Data = Annotated[str, StringConstraints(min_length=1)]


@with_config(STRICT)
class OcrFile(TypedDict):
    """One document: `data` in base64 or as a data URL, or the `url` of something on the public internet."""

    data: NotRequired[_Data]
    url: NotRequired[_Data]
    filename: NotRequired[str]


class _How(TypedDict):
    model: NotRequired[_Name | None]
    engine: NotRequired[_Name | None]
    """Another word for `model`."""
    dpi: NotRequired[Annotated[int, Field(ge=DPI_RANGE[0], le=DPI_RANGE[1])] | None]
    """Dots an inch that a PDF's pages are drawn with."""
    detect: NotRequired[Literal["off", "layout"] | None]
    """`layout` gives each page its regions, `off` none."""
    structured: NotRequired[Literal[False] | None]
    user: NotRequired[User | None]


@with_config(STRICT)
class OcrBody(_How):
    """The request's body; as a form it has the document in the part `file`."""

    file: OcrFile | _Data


@with_config(STRICT)
class OcrBatchBody(_How):
    """The request's body; as a form it has the documents in parts called `files`."""

    files: Annotated[list[OcrFile | _Data], Field(min_length=1, max_length=MAX_FILES)]


SHAPES: Final[dict[bool, TypeAdapter[Any]]] = {False: TypeAdapter(OcrBody), True: TypeAdapter(OcrBatchBody)}
"""By whether it is a batch."""
_KNOWN: Final = {
    False: frozenset(OcrBody.__annotations__) | {"schema"},
    True: frozenset(OcrBatchBody.__annotations__) | {"schema"},
}
_MISSING: Final = {
    False: ("file", "send the document: as the part 'file' of a form, or in JSON as base64, data URL or URL"),
    True: ("files", "send the documents: as parts 'files' of a form, or in JSON as a list"),
}


def check_fields(body: Body, *, batch: bool) -> None:
    """Check what a client sent, its documents in whatever form.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    check_known(body, _KNOWN[batch])
    for name in ("structured", "schema"):
        if body.get(name):
            raise InvalidRequest(f"{name} is not supported: text, lines and regions are given", param=name)
    param, sentence = _MISSING[batch]
    if not body.get(param):
        raise InvalidRequest(sentence, param=param, code="no_document")
    validate(SHAPES[batch], body)


def how(body: Body) -> Body:
    """What a checked request says of the way of reading, its defaults filled in."""
    return {"dpi": body.get("dpi") or DEFAULT_DPI, "layout": body.get("detect") != "off"}


def normal(body: Body) -> Body:
    """The request that a planner takes: `{model, files: [{name, pages, blob} | {name, error}], batch, dpi, layout}`.

    It is what is recorded and planned again; a preview may leave out all but the number of pages.

    Raises:
        InvalidRequest: it is none.
    """
    check_known(body, frozenset({"model", "files", "batch", "dpi", "layout"}))
    files = body.get("files")
    if not isinstance(files, list) or not files:
        raise InvalidRequest("files is a list of documents, each with its `pages`", param="files")
    made: list[Json] = [_file(file, index) for index, file in enumerate(files)]
    pages = sum(count for file in made if isinstance(file, dict) and isinstance(count := file.get("pages", 0), int))
    dpi = body.get("dpi", DEFAULT_DPI)
    if not isinstance(dpi, int) or not DPI_RANGE[0] <= dpi <= DPI_RANGE[1]:
        raise InvalidRequest(f"dpi is from {DPI_RANGE[0]} to {DPI_RANGE[1]}", param="dpi")
    if pages > MAX_REQUEST_PAGES:
        raise InvalidRequest(
            f"these documents have {pages} pages; {MAX_REQUEST_PAGES} are the most of one request", param="files"
        )
    batch = bool(body.get("batch", len(files) > 1))
    return {"files": made, "batch": batch, "dpi": dpi, "layout": body.get("layout") is not False}


def _file(file: Json, index: int) -> Json:
    param = f"files.{index}"
    if not isinstance(file, dict):
        raise InvalidRequest("a document is an object", param=param)
    name = str(file.get("name", f"file-{index + 1}"))
    error, pages, blob = file.get("error"), file.get("pages", 1), file.get("blob", "")
    if isinstance(error, dict):
        return {"name": name, "error": error}
    if not isinstance(pages, int) or not 1 <= pages <= MAX_PAGES or not (blob == "" or is_ref(blob)):
        raise InvalidRequest(f"a document has from 1 to {MAX_PAGES} pages", param=f"{param}.pages")
    return {"name": name, "pages": pages, "blob": blob}
