"""`POST <API base>/coderai/record`: lines of the spool as flow runs, behind Prefect's own authentication."""

from http import HTTPStatus
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError

from infra.errors import InvalidRequest
from infra.prefect_child.batch import NotReady, Record, Recorded
from infra.prefect_child.payloads import PayloadKeeper
from infra.records import Boot, read_line
from infra.types import Frozen

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_LINES = 500


class RecordLines(Frozen):
    """The body: records as the spool has them, one JSON object each."""

    lines: list[dict[str, Any]] = Field(max_length=MAX_LINES)


class LinesRecorded(Frozen):
    """The answer: how many lines are in the database now, those included that were there already."""

    recorded: int


class _Refused(Exception):
    """A body that is not taken, with the answer's status."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def record_router(record: Record, payloads: PayloadKeeper) -> APIRouter:
    """The route; what it is given is written whole or not at all."""
    router = APIRouter(prefix="/coderai", tags=["CoderAI"])

    @router.post("/record", response_model=LinesRecorded)
    async def record_lines(request: Request) -> LinesRecorded | JSONResponse:
        """Write the lines in one transaction: 413 and 422 for what is no such body, 503 while nothing is written."""
        try:
            body = _read(await _whole(request))
            await record([_entry(line, payloads) for line in body.lines])
        except _Refused as refused:
            return _answer(refused.status, str(refused))
        except NotReady as error:
            return _answer(HTTPStatus.SERVICE_UNAVAILABLE, error.message)
        except InvalidRequest as error:
            return _answer(HTTPStatus.UNPROCESSABLE_ENTITY, error.message)
        return LinesRecorded(recorded=len(body.lines))

    return router


def _answer(status: HTTPStatus, reason: str) -> JSONResponse:
    """A refusal in the shape of Prefect's own, since it stands among Prefect's routes."""
    return JSONResponse({"detail": reason}, status)


async def _whole(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes at once")
        parts.append(part)
    return b"".join(parts)


def _read(body: bytes) -> RecordLines:
    try:
        return RecordLines.model_validate_json(body)
    except ValidationError as error:
        raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"no lines: {error.errors()[0]['msg']}") from error


def _entry(line: dict[str, Any], payloads: PayloadKeeper) -> Boot | Recorded:
    record = read_line(orjson.dumps(line))
    return record if isinstance(record, Boot) else payloads.keep(record)
