"""Stored chat completions: rows of the install's database. Everything blocks.

Ids sort by age, so a list goes on from an id whether or not that completion is still there.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

import orjson
from sqlalchemy import ColumnElement, exists
from sqlmodel import Session, col, delete, select

from infra.clock import wall
from infra.database import Database
from infra.errors import InvalidRequest, NotFound
from infra.file_names import new_id
from infra.tables import ChatLabelRow, ChatRow
from infra.types import ChatId, Json, KeyName, ModelName

Body = dict[str, Json]

PAGE_BYTES: Final = 32 << 20
"""What the objects of one page take together; one that is larger makes a page of its own."""
_ID: Final = re.compile(r"chatcmpl-[0-9a-f]{28}", re.ASCII)


@dataclass(frozen=True, slots=True)
class NewChat:
    """What is to be stored: OpenAI's object without its `metadata`, those apart, and the request's messages."""

    id: ChatId
    key: KeyName
    model: ModelName
    completion: Body
    messages: list[Body]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChatsWanted:
    """Which completions are listed: those of `key` (of every key if None) that have all `labels`, beyond `after`."""

    key: KeyName | None
    model: ModelName | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    after: ChatId | None = None
    order: Literal["asc", "desc"] = "asc"
    limit: int = 20


def new_chat_id() -> ChatId:
    """The id of a completion that begins now."""
    return ChatId(new_id("chatcmpl-", wall()))


def is_chat_id(text: str) -> bool:
    """Whether this has the form of a stored completion's id."""
    return _ID.fullmatch(text) is not None


class StoredChats:
    """The stored chat completions of one install. A `key` of None sees those of all keys; an id that is unknown, or of
    another key's completion, raises NotFound."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, new: NewChat) -> None:
        """Store one.

        Raises:
            InvalidRequest: it is nested more deeply than it could be shown.
            DiskFull, DatabaseUnusable: it is not stored.
        """
        completion_bytes = _shown_bytes([new.completion])
        row = ChatRow(
            id=new.id,
            key_name=new.key,
            model=new.model,
            size_bytes=completion_bytes + _shown_bytes(new.messages),
            completion_bytes=completion_bytes,
            created_at=datetime.now(UTC),
            completion=new.completion,
            messages=new.messages,
        )
        with self._database.write() as session:
            session.add(row)
            session.flush()
            session.add_all(_labels(new.id, new.labels))

    def get(self, chat: ChatId, key: KeyName | None) -> Body:
        """The object, its `metadata` included."""
        with self._database.read() as session:
            return self._shown(session, chat, key)

    def messages(self, chat: ChatId, key: KeyName | None) -> list[Body]:
        """The messages of its request."""
        with self._database.read() as session:
            found = session.exec(select(ChatRow.key_name, ChatRow.messages).where(ChatRow.id == chat)).first()
        if found is None or key not in (None, found[0]):
            raise _missing(chat)
        return list(found[1])

    def page(self, wanted: ChatsWanted) -> tuple[list[Body], bool]:
        """The objects in the order of their age, and whether there are more; of large ones fewer than `limit`."""
        row_id, ascending = col(ChatRow.id), wanted.order == "asc"
        query = select(ChatRow.id, ChatRow.completion_bytes).limit(wanted.limit + 1)
        query = query.order_by(row_id if ascending else row_id.desc())
        if wanted.key is not None:
            query = query.where(ChatRow.key_name == wanted.key)
        if wanted.model is not None:
            query = query.where(ChatRow.model == wanted.model)
        if wanted.after is not None:
            query = query.where(row_id > wanted.after if ascending else row_id < wanted.after)
        for name, value in wanted.labels.items():
            query = query.where(_has_label(name, value))
        with self._database.read() as session:
            rows = session.exec(query).all()
            shown = _within(PAGE_BYTES, rows[: wanted.limit])
            found = select(ChatRow.id, ChatRow.completion).where(row_id.in_(shown))
            completions, labels = dict(session.exec(found).all()), _labels_of(session, shown)
        there = [chat for chat in shown if chat in completions]  # one may have been deleted meanwhile
        return [_with_labels(completions[chat], labels[chat]) for chat in there], len(rows) > len(shown)

    def relabel(self, chat: ChatId, key: KeyName | None, labels: Mapping[str, str]) -> Body:
        """Give it other `metadata` in place of what it has; the object as it is then.

        Raises:
            DiskFull, DatabaseUnusable: nothing has changed.
        """
        with self._database.write() as session:
            self._owned(session, chat, key)
            session.exec(delete(ChatLabelRow).where(col(ChatLabelRow.completion_id) == chat))
            session.add_all(_labels(chat, labels))
            session.flush()
            return self._shown(session, chat, key)

    def remove(self, chat: ChatId, key: KeyName | None) -> None:
        """Delete it.

        Raises:
            DiskFull, DatabaseUnusable: it is still there.
        """
        with self._database.write() as session:
            self._owned(session, chat, key)
            session.exec(delete(ChatRow).where(col(ChatRow.id) == chat))

    def _shown(self, session: Session, chat: ChatId, key: KeyName | None) -> Body:
        found = session.exec(select(ChatRow.key_name, ChatRow.completion).where(ChatRow.id == chat)).first()
        if found is None or key not in (None, found[0]):
            raise _missing(chat)
        return _with_labels(found[1], _labels_of(session, [chat])[chat])

    def _owned(self, session: Session, chat: ChatId, key: KeyName | None) -> None:
        """Keep its row from other writers till the end of the session."""
        owner = session.exec(select(ChatRow.key_name).where(ChatRow.id == chat).with_for_update()).first()
        if owner is None or key not in (None, owner):
            raise _missing(chat)


def _within(most_bytes: int, rows: Iterable[tuple[str, int]]) -> list[str]:
    """The first ids whose objects fit together, one at least."""
    fitting: list[str] = []
    for chat, size_bytes in rows:
        most_bytes -= size_bytes
        if fitting and most_bytes < 0:
            break
        fitting.append(chat)
    return fitting


def _has_label(name: str, value: str) -> ColumnElement[bool]:
    label = ChatLabelRow
    return (
        exists()
        .where(col(label.completion_id) == col(ChatRow.id))
        .where(col(label.name) == name, col(label.value) == value)
    )


def _labels(chat: ChatId, labels: Mapping[str, str]) -> list[ChatLabelRow]:
    return [ChatLabelRow(completion_id=chat, name=name, value=value) for name, value in labels.items()]


def _labels_of(session: Session, chats: Iterable[str]) -> dict[str, Body]:
    """The `metadata` of each of them."""
    found: dict[str, Body] = {chat: {} for chat in chats}
    query = select(ChatLabelRow).where(col(ChatLabelRow.completion_id).in_(found)).order_by(ChatLabelRow.name)
    for row in session.exec(query):
        found[row.completion_id][row.name] = row.value
    return found


def _with_labels(completion: Mapping[str, Json], labels: Body) -> Body:
    return {**completion, "metadata": labels}


def _shown_bytes(shown: list[Body]) -> int:
    """What these take as they will be listed, some levels deeper than they are."""
    try:
        return len(orjson.dumps({"data": shown}))
    except orjson.JSONEncodeError as error:
        raise InvalidRequest(
            "the chat is nested too deeply to be stored: flatten its tools, or leave out 'store'", param="store"
        ) from error


def _missing(chat: ChatId) -> NotFound:
    return NotFound(f"Chat completion with id '{chat[:100]}' not found.", param="completion_id")
