"""Responses that are made in the background: how far each is, and its answer. Everything blocks.

The front begins, shows and cancels them, the worker process makes them; the rows are what both know of each.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal, cast

import orjson
from sqlmodel import col, select

from infra.database import Database
from infra.tables import ResponseRow
from infra.types import Frozen, Json, ResponseId, RunId

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
UNDER_WAY: Final[frozenset[str]] = frozenset({"queued", "in_progress"})
"""The statuses of a response that is still to get its end."""
ANSWERED: Final[frozenset[str]] = frozenset({"completed", "incomplete"})
"""The statuses of a response that can be gone on from."""
RUN_TAG: Final = "response"
"""The kind of tag by which a flow run names the response that it makes: `response:<id>`."""
_OF_ANSWER: Final = ("status", "completed_at", "incomplete_details", "output", "usage")
"""What an answer adds to the response as it was begun."""
_AT_ONCE: Final = 500


class UnderWay(Frozen):
    """A response that is not over; `run` is the flow run that makes it, None until that is known."""

    id: ResponseId
    run: RunId | None
    created_at: datetime


class BackgroundResponses:
    """The responses of one install that are made in the background. What is said of one that was deleted, or that was
    not made in the background, goes unheard."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def under_way(self) -> list[UnderWay]:
        """Those that are not over."""
        wanted = select(ResponseRow.id, ResponseRow.run_id, ResponseRow.created_at).where(
            col(ResponseRow.status).in_(UNDER_WAY)
        )
        with self._database.read() as session:
            found = session.exec(wanted).all()
        return [
            UnderWay(id=ResponseId(each), run=None if run is None else RunId(run), created_at=created_at)
            for each, run, created_at in found
        ]

    def is_under_way(self, response: ResponseId) -> bool:
        """Whether there is such a response, and it is not over."""
        with self._database.read() as session:
            status = session.exec(select(ResponseRow.status).where(ResponseRow.id == response)).first()
        return status in UNDER_WAY

    def gone(self, responses: Sequence[ResponseId]) -> set[ResponseId]:
        """Which of these there are no more."""
        there: set[str] = set()
        with self._database.read() as session:
            for begin in range(0, len(responses), _AT_ONCE):
                some = responses[begin : begin + _AT_ONCE]
                there.update(session.exec(select(ResponseRow.id).where(col(ResponseRow.id).in_(some))))
        return {response for response in responses if response not in there}

    def knows(self, response: ResponseId) -> bool:
        """Whether there is such a response."""
        with self._database.read() as session:
            return session.exec(select(ResponseRow.id).where(ResponseRow.id == response)).first() is not None

    def queued(self, response: ResponseId, run: RunId) -> None:
        """Note the flow run that will make it; one that was given up for want of a run waits again."""
        with self._changing(response) as row:
            if row is not None:
                if row.run_id is None and row.status == "failed":
                    _become(row, "queued", None)
                row.run_id = run

    def begin(self, response: ResponseId, run: RunId) -> Status | None:
        """Its flow run has begun; gives the status that it has now, None if there is none to be made. One that has its
        answer keeps it until there is another one."""
        with self._changing(response) as row:
            if row is None:
                return None
            row.run_id = run
            if row.status not in ANSWERED:
                _become(row, "in_progress", None)
            return cast(Status, row.status)

    def answer(self, response: ResponseId, answer: dict[str, Json], beside_bytes: int = 0) -> None:
        """It has its answer, a whole response object; so much is kept of it beside its row. One that was cancelled
        meanwhile stays so."""
        with self._changing(response) as row:
            if row is not None and row.status in UNDER_WAY | ANSWERED:
                row.response = row.response | {name: answer[name] for name in _OF_ANSWER if name in answer}
                _become(row, str(answer["status"]), None)
                row.size_bytes += beside_bytes

    def end(
        self,
        response: ResponseId,
        status: Literal["failed", "cancelled"],
        error: dict[str, Json] | None = None,
        beside_bytes: int = 0,
    ) -> None:
        """It ends without an answer; `error` is OpenAI's object, and so much is kept of it beside its row. One that is
        over stays as it is."""
        with self._changing(response) as row:
            if row is not None and row.status in UNDER_WAY:
                _become(row, status, error)
                row.size_bytes += beside_bytes

    def forget(self, response: ResponseId) -> None:
        """Remove one that could not be begun."""
        with self._database.write() as session:
            row = session.get(ResponseRow, response)
            if row is not None:
                session.delete(row)

    @contextmanager
    def _changing(self, response: ResponseId) -> Iterator[ResponseRow | None]:
        """The row of a response in the background, kept from other writers until it is written."""
        wanted = select(ResponseRow).where(ResponseRow.id == response, col(ResponseRow.status).is_not(None))
        with self._database.write() as session:
            row = session.exec(wanted.with_for_update()).first()
            yield row
            if row is not None:
                session.add(row)


def _become(row: ResponseRow, status: str, error: Json) -> None:
    row.status = status
    row.response = row.response | {"status": status, "error": error}
    row.size_bytes = len(orjson.dumps(row.response)) + len(orjson.dumps(row.input))
    row.used_at = datetime.now(UTC)
