"""LoRA adapters of keys: rows in the database, their bytes in the file store. Everything blocks.

An adapter is called by its content (`sha256:…`), which belongs to the keys that have brought it, or by a name. A name
that an admin gives is everybody's; of two of one name a key means its own.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sqlmodel import Session, col, or_, select

from infra.errors import Conflict, Forbidden, InvalidRequest, NotFound
from infra.file_names import new_id
from infra.file_rows import Files
from infra.file_store import Incoming
from infra.tables import LoraRow
from infra.tokens import Key
from infra.types import Frozen, KeyName

NAMED: Final = "name:"
HASHED: Final = "sha256:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_RESERVED: Final = frozenset({"blob", "progress", "train", "upload"})
"""What stands in a name's place in an address."""
_BASE_CHARS: Final = 200
_NEAR: Final = 3


class Lora(Frozen):
    """An adapter. `ref` is its content, `rank` the largest of its matrices', `base_model` what it is for, as its owner
    says."""

    name: str | None
    key: KeyName
    shared: bool
    base_model: str | None
    rank: int
    size_bytes: int
    ref: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewLora:
    """What an adapter is to be."""

    key: Key
    rank: int
    name: str | None = None
    base_model: str | None = None


class Loras:
    """The adapters of one install."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def add(self, incoming: Incoming, new: NewLora) -> tuple[Lora, bool]:
        """Keep an adapter whose bytes have all come; the second is whether the key had its content already.
        `incoming` is let go of, whatever happens.

        Raises:
            InvalidRequest, DiskFull: the name cannot be used, or there is no room.
            Conflict: the name is another adapter's.
        """
        try:
            name, base_model = checked_name(new.name), checked_base_model(new.base_model)
            sealed = incoming.seal()
            with self.files.changing() as session:
                had = self._visible(session, new.key, sealed.ref)
                row = self._present(session, new.key, name, sealed.ref)
                if row is None:
                    self.files.require_room(session, new.key.name, sealed.size_bytes)
                    row = self._row(new, sealed.ref, sealed.size_bytes)
                row.name, row.base_model = name or row.name, base_model or row.base_model
                session.add(row)
                incoming.place()
            return _lora(row), bool(had)
        finally:
            incoming.discard()

    def find(self, wanted: str, key: Key) -> Lora:
        """The adapter that `wanted` is: `sha256:…`, `name:…`, or a name alone.

        Raises:
            NotFound: there is none, or it is another key's; the message has near names.
        """
        with self.files.reading() as session:
            return _lora(self._found(session, wanted, key)[0])

    def content(self, ref: str, key: Key) -> Path:
        """Where the content lies, once it is known to be the key's to use.

        Raises:
            NotFound: it is not, or is not kept.
        """
        path = self.files.store.path(self.find(ref, key).ref)
        if not path.is_file():
            raise NotFound(f"the content of the LoRA {ref} is lost: send it again", code="file_gone")
        return path

    def all(self, key: Key) -> list[Lora]:
        """The adapters that the key may use, the latest first."""
        with self.files.reading() as session:
            return [_lora(row) for row in reversed(self._visible(session, key))]

    def delete(self, wanted: str, key: Key) -> str:
        """Remove an adapter, and its bytes with the last row that has them; returns the name or id that went.

        Raises:
            NotFound: as `find`.
            Forbidden: the name is an admin's, for everybody.
        """
        with self.files.changing() as session:
            rows = self._found(session, wanted, key)
            if not wanted.startswith(HASHED):
                rows = rows[:1]
            mine = [row for row in rows if key.scope == "admin" or row.key_name == key.name]
            if not mine:
                raise Forbidden(f"the LoRA {rows[0].name!r} is an administrator's: only an admin key removes it")
            for row in mine:
                session.delete(row)
            self.files.drop_unreferred(session, {row.ref for row in mine})
            return mine[0].name or mine[0].ref

    def _row(self, new: NewLora, ref: str, size_bytes: int) -> LoraRow:
        created_at = self.files.now()
        return LoraRow(
            id=new_id("lora_", created_at.timestamp()),
            key_name=new.key.name,
            shared=new.key.scope == "admin",
            rank=new.rank,
            size_bytes=size_bytes,
            ref=ref,
            created_at=created_at,
        )

    def _present(self, session: Session, key: Key, name: str | None, ref: str) -> LoraRow | None:
        """The row that is this adapter already: of that name, or one without a name that may get it.

        Raises:
            Conflict: the name is another adapter's.
        """
        mine = col(LoraRow.key_name) == key.name
        if name is not None:
            ours = or_(mine, col(LoraRow.shared)) if key.scope == "admin" else mine
            row = session.exec(select(LoraRow).where(LoraRow.name == name, ours)).first()
            if row is not None and row.ref == ref:
                return row
            if row is not None:
                raise Conflict(
                    f"the LoRA {name!r} is there already, with other content: remove it first "
                    f"(DELETE /v1/loras/{name}), or take another name",
                    param="name",
                )
        same = select(LoraRow).where(mine, LoraRow.ref == ref)
        return session.exec(same if name is None else same.where(col(LoraRow.name).is_(None))).first()

    def _visible(self, session: Session, key: Key, ref: str | None = None) -> list[LoraRow]:
        """What the key may use, by age."""
        query = select(LoraRow).order_by(col(LoraRow.id))
        if ref is not None:
            query = query.where(LoraRow.ref == ref)
        if key.scope != "admin":
            shared = col(LoraRow.shared) & col(LoraRow.name).is_not(None)
            query = query.where(or_(col(LoraRow.key_name) == key.name, shared))
        return list(session.exec(query).all())

    def _found(self, session: Session, wanted: str, key: Key) -> list[LoraRow]:
        """The rows of `find`: the key's own first, then shared ones."""
        rows = self._visible(session, key)
        name = wanted.removeprefix(NAMED)
        hashed = wanted.startswith(HASHED)
        found = [row for row in rows if (row.ref if hashed else row.name) == (wanted if hashed else name)]
        if not found:
            raise _unknown(wanted, {row.name for row in rows if row.name})
        return sorted(found, key=lambda row: (row.key_name != key.name, not row.shared, row.id))


def checked_name(name: str | None) -> str | None:
    """A name that an adapter may get.

    Raises:
        InvalidRequest: it cannot be one.
    """
    if name is not None and (not _NAME.fullmatch(name) or name in _RESERVED):
        raise InvalidRequest(
            f"a LoRA cannot be called {name[:100]!r}: a name has 1 to 100 letters, digits, '.', '_' and '-', begins "
            f"with a letter or digit, and is none of {', '.join(sorted(_RESERVED))}",
            param="name",
        )
    return name


def checked_base_model(base_model: str | None) -> str | None:
    """What an adapter's owner says that it is for.

    Raises:
        InvalidRequest: it is too long, or cannot be shown.
    """
    if base_model is not None and (len(base_model) > _BASE_CHARS or not base_model.isprintable()):
        raise InvalidRequest(f"base_model is a model's name of at most {_BASE_CHARS} characters", param="base_model")
    return base_model


def _unknown(wanted: str, names: Iterable[str]) -> NotFound:
    near = difflib.get_close_matches(wanted.removeprefix(NAMED), sorted(names), _NEAR)
    hint = f"; near names: {', '.join(near)}" if near else ""
    return NotFound(
        f"there is no LoRA {wanted[:100]!r} for this key{hint}. GET /v1/loras lists those that there are",
        param="loras",
        code="lora_not_found",
    )


def _lora(row: LoraRow) -> Lora:
    return Lora(
        name=row.name,
        key=KeyName(row.key_name),
        shared=row.shared,
        base_model=row.base_model,
        rank=row.rank,
        size_bytes=row.size_bytes,
        ref=row.ref,
        created_at=row.created_at,
    )
