"""Models that are added, changed and removed while running: the database's rows of the catalogue."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from sqlmodel import Session, col, select

from infra.database import Database, bump_revision
from infra.errors import Conflict, InvalidRequest
from infra.settings import Settings, config_path
from infra.tables import ModelRow
from infra.types import Json
from workers.catalogue import declared_names, model_not_found, names_of
from workers.entries import HIDDEN_KEY, ReadWeights, checked_path, entry_from_row, stored
from workers.packaged.catalogue import packaged_entries
from workers.types import ModelEntry


class ModelRows:
    """The rows of the table `model`; every change is seen by the front a second later.

    `trusted` says who asks: the machine's owner at the command line, or somebody over HTTP, whose paths must lie
    below the configured folders. Rows declared in the file are read-only here.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database

    def add(self, row: Mapping[str, object], read_weights: ReadWeights, *, trusted: bool) -> ModelEntry:
        """Add one model: a local one by its `path`, whose header says what it is, or a far one by its `service_url`.

        Raises:
            InvalidRequest: a field or the file cannot be used; `param` names the field.
            Forbidden: the path does not lie below the configured folders.
            Conflict: the name, or an alias, is taken.
        """
        entry = self.checked(row, read_weights, trusted=trusted)
        self.add_all((entry,))
        return entry

    def add_local(
        self, path: str | Path, read_weights: ReadWeights, *, trusted: bool, name: str | None = None, **fields: Json
    ) -> ModelEntry:
        """Add the weights at `path`, called after the file or folder unless `name` says otherwise.

        Raises:
            InvalidRequest, Forbidden, Conflict: as `add` does.
        """
        called = name or (Path(path).absolute().name if Path(path).is_dir() else Path(path).stem)
        return self.add({**fields, "name": called, "path": str(path)}, read_weights, trusted=trusted)

    def checked(self, row: Mapping[str, object], read_weights: ReadWeights, *, trusted: bool) -> ModelEntry:
        """The entry that `add` would store; nothing is changed.

        Raises:
            InvalidRequest, Forbidden: as `add` does.
        """
        filled = dict(row)
        if row.get("path") is not None:
            filled["path"] = checked_path(str(row["path"]), self._settings, trusted=trusted)
        return entry_from_row(filled, "database", read_weights)

    def add_all(self, entries: Iterable[ModelEntry]) -> None:
        """Add checked entries, all of them or none.

        Raises:
            Conflict: a name or an alias is taken.
        """
        now = datetime.now(UTC)
        wanted = tuple(entries)
        if not wanted:
            return
        with self._database.write() as session:
            bump_revision(session, "models")
            for entry in wanted:
                self._require_free(session, entry)
                session.add(ModelRow(name=entry.name, entry=stored(entry), created_at=now, updated_at=now))
                session.flush()

    def update(
        self, name: str, changes: Mapping[str, object], read_weights: ReadWeights, *, trusted: bool
    ) -> ModelEntry:
        """Change fields of a model; None returns a field to its default, the shown `***` leaves the key as it is.

        Raises:
            ModelNotFound: the database has no such model.
            InvalidRequest, Forbidden: as `add` does; a name cannot be changed.
            Conflict: the model is declared in the file or comes in a package, or a new alias is taken.
        """
        if changes.get("name", name) != name:
            raise InvalidRequest("a model's name cannot be changed: remove it and add it anew", param="name")
        self._require_own(name)
        kept = {key: value for key, value in changes.items() if (key, value) != ("api_key", HIDDEN_KEY)}
        with self._database.write() as session:
            bump_revision(session, "models")
            row = self._row(session, name)
            old = {**row.entry, "name": name}
            if "path" in kept:  # other weights: what the old ones said of themselves is void
                old = {key: value for key, value in old.items() if key not in _OF_THE_WEIGHTS}
            merged = {key: value for key, value in {**old, **kept}.items() if value is not None}
            if "path" in kept or "path" not in merged:
                entry = self.checked(merged, read_weights, trusted=trusted)
            else:
                entry = entry_from_row(merged, "database")
            self._require_free(session, entry, own=name)
            row.entry = stored(entry)
            row.updated_at = datetime.now(UTC)
            session.add(row)
        return entry

    def remove(self, name: str) -> None:
        """Remove a model's row; its weights stay where they are.

        Raises:
            ModelNotFound: the database has no such model.
            Conflict: it is declared in the file, or comes in a package.
        """
        self._require_own(name)
        with self._database.write() as session:
            bump_revision(session, "models")
            session.delete(self._row(session, name))

    def _row(self, session: Session, name: str) -> ModelRow:
        row = session.get(ModelRow, name)
        if row is None:
            self._require_not_packaged(name)
            raise model_not_found(name, session.exec(select(ModelRow.name)).all())
        return row

    def _require_not_packaged(self, name: str) -> None:
        packaged = packaged_entries(self._settings.home) if self._settings.models.packaged else ()
        if any(name in names_of(entry) for entry in packaged):
            raise Conflict(
                f"the model {name!r} comes in a Python package: uninstall that one, or offer none of them with "
                "models.packaged = false in coderai.toml",
                param="name",
            )

    def _require_own(self, name: str) -> None:
        if name in declared_names(self._settings):
            _raise_declared(name)

    def require_free(self, entry: ModelEntry, *, beside: Iterable[ModelEntry] = ()) -> None:
        """Make sure that `entry` could be added now, together with those `beside` it; nothing is changed.

        Raises:
            Conflict: its name or an alias is taken.
        """
        for other in beside:
            _require_apart(entry, other.name, names_of(other))
        with self._database.read() as session:
            self._require_free(session, entry)

    def _require_free(self, session: Session, entry: ModelEntry, own: str | None = None) -> None:
        """Refuse a name or alias that the file or another row has. A packaged model may be stood over on purpose."""
        wanted = names_of(entry)
        if len(set(wanted)) != len(wanted):
            raise Conflict(f"the model {entry.name!r} has an alias twice, or its own name as one", param="aliases")
        for name in declared_names(self._settings).intersection(wanted):
            _raise_declared(name)
        for row in session.exec(select(ModelRow).where(col(ModelRow.name) != (own or ""))):
            aliases = row.entry.get("aliases")
            _require_apart(entry, row.name, (row.name, *(aliases if isinstance(aliases, list) else ())))


_OF_THE_WEIGHTS = frozenset(
    (
        "format",
        "capabilities",
        "architecture",
        "embedding_dimensions",
        "pooling",
        "weights_bytes",
        "sha256",
        "rerank_method",
        "context_tokens",
        "service_url",
        "served_model",
        "api_key",
    )
)
"""What a new path makes void."""


def _require_apart(entry: ModelEntry, other: str, taken: Iterable[object]) -> None:
    for name in taken:
        if name in names_of(entry):
            raise Conflict(
                f"the name {name!r} is taken by the model {other!r}: choose another, or remove that one",
                param="name" if name == entry.name else "aliases",
            )


def _raise_declared(name: str) -> NoReturn:
    raise Conflict(f"the model {name!r} is declared in {config_path()}: change it there", param="name")
