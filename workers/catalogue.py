"""The models of an install as one immutable snapshot, and how a name is looked up in it."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlmodel import Session, col, select

from infra.database import Database, read_revision
from infra.errors import ModelNotFound, SettingsInvalid, UserError
from infra.settings import Settings, config_path
from infra.tables import ModelRow
from infra.types import ModelName
from workers.entries import BadField, ReadWeights, entry_from_row
from workers.types import ModelEntry

_NEAR = 3
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every model by name and alias, at one moment. File rows stand over database rows, those over packaged ones.

    `entries` are sorted by name. `problems` says which stored rows cannot be used, and why. `revision` is the
    database's count of changes, `rows` the file's own: what `refreshed` compares.
    """

    entries: tuple[ModelEntry, ...] = ()
    problems: tuple[str, ...] = ()
    revision: int = 0
    rows: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    _index: Mapping[str, ModelEntry] = field(default_factory=dict, repr=False)

    @classmethod
    def load(
        cls,
        settings: Settings,
        database: Database,
        packaged: Sequence[ModelEntry],
        read_weights: ReadWeights | None = None,
    ) -> "Catalogue":
        """Read all three sources. `read_weights` fills in what a file row leaves out; it opens the weights.

        Raises:
            SettingsInvalid: a row of the file cannot be used; the message has its number and field.
            DatabaseUnusable: the database does not answer.
        """
        declared, unusable = file_entries(settings, read_weights)
        with database.read() as session:
            revision = read_revision(session, "models")
            added, problems = _database_entries(session)
        offered = tuple(packaged) if settings.models.packaged else ()
        entries, index = _merged((declared, added, offered))
        return cls(entries, (*unusable, *problems), revision, settings.model, index)

    def refreshed(
        self,
        settings: Settings,
        database: Database,
        packaged: Sequence[ModelEntry],
        read_weights: ReadWeights | None = None,
    ) -> "Catalogue":
        """This snapshot if neither the database's rows nor the file's have changed, else a new one. Costs one query.

        Raises:
            SettingsInvalid, DatabaseUnusable: as `load` does; the old snapshot stays good.
        """
        with database.read() as session:
            same = read_revision(session, "models") == self.revision
        if same and settings.model == self.rows:
            return self
        return Catalogue.load(settings, database, packaged, read_weights)

    def find(self, name: str) -> ModelEntry | None:
        """The model that `name` means, as its name or an alias."""
        return self._index.get(name)

    def get(self, name: str) -> ModelEntry:
        """The model that `name` means.

        Raises:
            ModelNotFound: none; the message has names that look like it.
        """
        entry = self._index.get(name)
        if entry is None:
            raise model_not_found(name, self._index)
        return entry

    def near(self, name: str) -> tuple[str, ...]:
        """Up to three names that look like `name`, the likeliest first."""
        return near_names(name, self._index)


def file_entries(
    settings: Settings, read_weights: ReadWeights | None = None
) -> tuple[tuple[ModelEntry, ...], tuple[str, ...]]:
    """The models that `coderai.toml` (or `CODERAI_MODEL`) declares, and what keeps others from being served: their
    weights are not there, or not whole. A relative path starts at the install's directory.

    Raises:
        SettingsInvalid: a row cannot be used, or two have one name; the message has the row's number and field.
    """
    entries: list[ModelEntry] = []
    problems: list[str] = []
    taken: dict[str, int] = {}
    for index, row in enumerate(settings.model):
        try:
            entry = entry_from_row(_with_absolute_path(row, settings), "file", read_weights)
        except BadField as error:
            raise _bad_row(index, row, error.message, error.param) from None
        except UserError as error:
            problems.append(_bad_row(index, row, error.message, error.param).message)
            continue
        for name in dict.fromkeys((entry.name, *entry.aliases)):
            if name in taken:
                words = f"the name {name!r} is taken by [[model]] {taken[name] + 1} already"
                raise _bad_row(index, row, words, "name" if name == entry.name else "aliases")
            taken[name] = index
        entries.append(entry)
    return tuple(entries), tuple(problems)


def declared_names(settings: Settings) -> frozenset[str]:
    """Every name and alias that the file's rows use, whether the rows are good or not."""
    names: set[str] = set()
    for row in settings.model:
        aliases = row.get("aliases")
        names.update(str(one) for one in (row.get("name"), *(aliases if isinstance(aliases, list | tuple) else ())))
    return frozenset(names)


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Up to three of the known names that look like `name`, whatever the case, the likeliest first."""
    wanted = name[:_LONGEST_NAME].casefold()
    folded: dict[str, str] = {}
    for one in sorted(known):
        folded.setdefault(one.casefold(), one)
    close = difflib.get_close_matches(wanted, folded, n=_NEAR, cutoff=0.6)
    parts = [one for one in folded if len(wanted) > 1 and (wanted in one or (len(one) > 1 and one in wanted))]
    return tuple(folded[one] for one in dict.fromkeys((*close, *parts)))[:_NEAR]


def model_not_found(name: str, known: Iterable[str]) -> ModelNotFound:
    """The error for a model that is not there: `Model 'x' is not available`, and what to do."""
    near = " or ".join(repr(one) for one in near_names(name, known))
    hint = f"; did you mean {near}?" if near else ""
    return ModelNotFound(f"Model '{name[:_LONGEST_NAME]}' is not available{hint}, see GET /v1/models", param="model")


def _database_entries(session: Session) -> tuple[tuple[ModelEntry, ...], tuple[str, ...]]:
    """The usable rows, and what is wrong with the others: one bad row does not take the other models away."""
    entries: list[ModelEntry] = []
    problems: list[str] = []
    for row in session.exec(select(ModelRow).order_by(col(ModelRow.name))):
        try:
            entries.append(entry_from_row({**row.entry, "name": row.name}, "database"))
        except UserError as error:
            problems.append(f"the stored model {row.name!r} cannot be used: {error.message}; remove it and add it anew")
    return tuple(entries), tuple(problems)


def _merged(sources: Iterable[Sequence[ModelEntry]]) -> tuple[tuple[ModelEntry, ...], dict[str, ModelEntry]]:
    """One index of all names: an earlier source's name or alias hides the same word of a later one.

    Within a source a name comes before an alias. A model whose own name is hidden is not there at all.
    """
    index: dict[str, ModelEntry] = {}
    visible: list[ModelEntry] = []
    for source in sources:
        mine = [entry for entry in source if entry.name not in index]
        for entry in mine:
            index[entry.name] = entry
        for entry in mine:
            for alias in entry.aliases:
                index.setdefault(alias, entry)
        visible.extend(mine)
    return tuple(sorted(visible, key=lambda entry: entry.name)), index


def _with_absolute_path(row: Mapping[str, object], settings: Settings) -> Mapping[str, object]:
    path = row.get("path")
    return {**row, "path": settings.home / Path(path).expanduser()} if isinstance(path, str) else row


def _bad_row(index: int, row: Mapping[str, object], words: str, param: str | None) -> SettingsInvalid:
    called = f" ({row['name']!r})" if isinstance(row.get("name"), str) else ""
    return SettingsInvalid(
        f"[[model]] {index + 1}{called} cannot be used: {words}; look in {config_path()}",
        param=f"model.{index}.{param}" if param else f"model.{index}",
    )


def names_of(entry: ModelEntry) -> tuple[ModelName, ...]:
    """An entry's name and its aliases."""
    return (entry.name, *entry.aliases)
