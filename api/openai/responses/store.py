"""Stored responses: rows of the install's database. Synchronous: call it in a thread.

A row has what its own request gave; a conversation is the chain of rows by `previous_id`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import orjson
from sqlmodel import Session, col, select, update

from infra.database import Database
from infra.errors import InvalidRequest, NotFound
from infra.response_rows import ANSWERED, UNDER_WAY
from infra.tables import ResponseRow
from infra.tokens import Key
from infra.types import Json, KeyName, ResponseId, RunId

Body = dict[str, Json]

MAX_CHAIN: Final = 1000
"""Responses that one conversation may have."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A response with the input items of its own request. `status` is that of one that is made in the background, None
    of others; `run` the flow run that makes it, once it is known."""

    response: Body
    input: list[Body]
    status: str | None = None
    run: RunId | None = None

    @property
    def shown(self) -> Body:
        """The response as its owner sees it."""
        return self.response if self.run is None else {**self.response, "run": self.run}


class Turn(NamedTuple):
    """One response of a conversation: whose it is, and its input and output items."""

    key: KeyName
    items: list[Body]


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose responses may be seen: one key's, or everybody's."""

    key: KeyName
    everybody: bool = False

    @staticmethod
    def of(key: Key) -> "Whose":
        """What a caller may see."""
        return Whose(key.name, key.scope == "admin")


def keep(database: Database, key: KeyName, response: Body, given: list[Body]) -> None:
    """Store a response with the items that its request gave; what it goes on from is in use again. One that is made in
    the background is stored before it has an answer.

    Raises:
        DiskFull, DatabaseUnusable: it is not stored.
    """
    now = datetime.now(UTC)
    previous = response.get("previous_response_id")
    row = ResponseRow(
        id=str(response["id"]),
        key_name=key,
        previous_id=previous if isinstance(previous, str) else None,
        size_bytes=len(orjson.dumps(response)) + len(orjson.dumps(given)),
        created_at=now,
        used_at=now,
        response=response,
        input=given,
        status=str(response["status"]) if response.get("background") is True else None,
    )
    with database.write() as session:
        session.add(row)
        before = _ids(session, row.previous_id)
        if before:
            session.exec(update(ResponseRow).where(col(ResponseRow.id).in_(before)).values(used_at=now))


def get(database: Database, whose: Whose, response_id: ResponseId) -> Stored:
    """A stored response.

    Raises:
        NotFound: there is none, it was deleted, or it is another key's.
    """
    with database.read() as session:
        row = session.get(ResponseRow, response_id)
    if row is None or not _sees(whose, row.key_name):
        raise _missing(response_id)
    return Stored(row.response, row.input, row.status, None if row.run_id is None else RunId(row.run_id))


def status_of(database: Database, whose: Whose, response_id: ResponseId) -> str | None:
    """The status of a response alone, as `Stored` has it: the rest of one may be tens of megabytes.

    Raises:
        NotFound: as `get`.
    """
    wanted = select(ResponseRow.key_name, ResponseRow.status).where(ResponseRow.id == response_id)
    with database.read() as session:
        found = session.exec(wanted).first()
    if found is None or not _sees(whose, found[0]):
        raise _missing(response_id)
    return found[1]


def remove(database: Database, whose: Whose, response_id: ResponseId) -> None:
    """Delete a response.

    Raises:
        NotFound: as `get`.
    """
    with database.write() as session:
        row = session.get(ResponseRow, response_id)
        if row is None or not _sees(whose, row.key_name):
            raise _missing(response_id)
        session.delete(row)


def conversation(database: Database, whose: Whose, response_id: ResponseId) -> list[Turn]:
    """A response and all before it, the oldest first.

    Raises:
        NotFound: it, or one before it, is not there (any more), or is another key's.
        InvalidRequest: the conversation has become too long, or one of them has no answer.
    """
    turns: list[Turn] = []
    wanted: ResponseId | None = response_id
    with database.read() as session:
        while wanted is not None:
            row = session.get(ResponseRow, wanted)
            if row is None or not _sees(whose, row.key_name):
                raise _gone(response_id, wanted)
            if row.status is not None and row.status not in ANSWERED:
                raise _unanswered(wanted, row.status)
            if len(turns) >= MAX_CHAIN:
                raise InvalidRequest(
                    f"a conversation may have {MAX_CHAIN} responses: begin a new one", param="previous_response_id"
                )
            output = row.response.get("output")
            made = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
            turns.append(Turn(KeyName(row.key_name), [*row.input, *made]))
            wanted = ResponseId(row.previous_id) if row.previous_id else None
    return turns[::-1]


def _ids(session: Session, last: str | None) -> list[str]:
    """The ids of a response and of all before it."""
    ids: list[str] = []
    while last is not None and len(ids) < MAX_CHAIN:
        ids.append(last)
        last = session.exec(select(ResponseRow.previous_id).where(ResponseRow.id == last)).first()
    return ids


def _sees(whose: Whose, owner: str) -> bool:
    return whose.everybody or owner == whose.key


def _missing(response_id: ResponseId) -> NotFound:
    return NotFound(f"Response with id '{response_id[:100]}' not found.", param="response_id")


def _unanswered(response_id: ResponseId, status: str) -> InvalidRequest:
    what = "wait for its end" if status in UNDER_WAY else "go on from one that has an answer"
    return InvalidRequest(
        f"Previous response with id '{response_id[:100]}' is {status}: {what}",
        param="previous_response_id",
        code="previous_response_not_completed",
    )


def _gone(asked: ResponseId, missing: ResponseId) -> NotFound:
    if asked == missing:
        sentence = f"Previous response with id '{asked[:100]}' not found."
    else:
        sentence = (
            f"The conversation of response '{asked[:100]}' is not whole: '{missing}', which it goes on from, was "
            "deleted; give the conversation in 'input'"
        )
    return NotFound(sentence, param="previous_response_id", code="previous_response_not_found")
