"""The front's snapshots: changes seen, only what changed is forgotten, a broken database changes nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import api.shelf
from api.shelf import Shelf
from infra.database import Database, open_database
from infra.errors import CoderAIError, ModelNotFound
from infra.migrate import migrate
from infra.settings import Settings, load_settings
from infra.tokens import TokenTable, create_key, revoke_key
from infra.types import ModelName
from tests.fakes import make_entry
from workers.catalogue_rows import ModelRows
from workers.weights import read_weights

FAR = {"name": "far", "service_url": "http://box"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, model=[{"name": "declared", "service_url": "http://other"}])


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    made = open_database(settings.sqlalchemy_url)
    migrate(made)
    yield made
    made.close()


@pytest.fixture
def tokens(database: Database) -> TokenTable:
    return TokenTable(database)


@pytest.fixture
def rows(settings: Settings, database: Database) -> ModelRows:
    return ModelRows(settings, database)


@pytest.fixture
def changed() -> list[ModelName]:
    return []


@pytest.fixture
def shelf(settings: Settings, database: Database, tokens: TokenTable, changed: list[ModelName]) -> Shelf:
    packaged = (make_entry("packaged", source="package"),)
    made = Shelf(settings, database, tokens, lambda: packaged, read_weights)
    made.changed = changed.append
    return made


def names(shelf: Shelf) -> list[str]:
    return [entry.name for entry in shelf.catalogue.entries]


async def test_what_was_there_at_the_start(shelf: Shelf, changed: list[ModelName]) -> None:
    assert names(shelf) == ["declared", "packaged"]
    before = shelf.catalogue
    await shelf.refresh()
    assert shelf.catalogue is before
    assert changed == []


async def test_a_model_that_came_is_there_and_nothing_is_forgotten(
    shelf: Shelf, rows: ModelRows, changed: list[ModelName]
) -> None:
    rows.add(FAR, read_weights, trusted=True)
    await shelf.refresh()
    assert names(shelf) == ["declared", "far", "packaged"]
    assert changed == []


async def test_only_what_changed_or_went_is_forgotten(shelf: Shelf, rows: ModelRows, changed: list[ModelName]) -> None:
    for name in ("far", "still", "gone"):
        rows.add(FAR | {"name": name}, read_weights, trusted=True)
    await shelf.refresh()
    rows.update("far", {"max_instances": 9}, read_weights, trusted=True)
    rows.remove("gone")
    await shelf.refresh()
    assert sorted(changed) == ["far", "gone"]
    assert shelf.catalogue.get("far").max_instances == 9


async def test_a_packaged_model_that_a_row_stands_over_is_forgotten(
    shelf: Shelf, rows: ModelRows, changed: list[ModelName]
) -> None:
    rows.add(FAR | {"name": "packaged"}, read_weights, trusted=True)
    await shelf.refresh()
    assert changed == ["packaged"]
    assert shelf.catalogue.get("packaged").service_url == "http://box"


async def test_keys_are_followed_too(shelf: Shelf, database: Database, tokens: TokenTable) -> None:
    key = create_key(database, "ann", "user")
    assert tokens.find(key) is None
    await shelf.refresh()
    assert tokens.find(key) is not None
    revoke_key(database, "ann")
    await shelf.refresh()
    assert tokens.find(key) is None


def hide_revisions(database: Database, back: bool = False) -> None:
    words = "hidden RENAME TO revision" if back else "revision RENAME TO hidden"
    with database.write() as session:
        session.connection().exec_driver_sql(f"ALTER TABLE {words}")


async def test_a_broken_database_leaves_all_as_it_was(
    shelf: Shelf, database: Database, rows: ModelRows, tokens: TokenTable, changed: list[ModelName]
) -> None:
    key = create_key(database, "ann", "user")
    rows.add(FAR, read_weights, trusted=True)
    await shelf.refresh()
    hide_revisions(database)
    with pytest.raises(CoderAIError):
        await shelf.refresh()
    assert names(shelf) == ["declared", "far", "packaged"]
    assert tokens.find(key) is not None
    assert changed == []


async def test_it_goes_on_looking_when_the_database_is_back(
    shelf: Shelf,
    database: Database,
    rows: ModelRows,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(api.shelf, "REFRESH_S", 0.01)
    hide_revisions(database)
    looking = asyncio.create_task(shelf.keep_fresh())
    async with asyncio.timeout(5):
        while "models and keys stay as they are" not in caplog.text:  # a log has no event
            await asyncio.sleep(0.01)
        hide_revisions(database, back=True)
        rows.add(FAR, read_weights, trusted=True)
        while "far" not in names(shelf):
            await asyncio.sleep(0.01)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


async def test_the_file_s_models_are_read_again_when_it_changes(
    shelf: Shelf, changed: list[ModelName], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "coderai.toml"
    monkeypatch.setenv("CODERAI_CONFIG", str(file))
    file.write_text('[[model]]\nname = "declared"\nservice_url = "http://elsewhere"\n')
    await shelf.refresh()
    assert shelf.catalogue.get("declared").service_url == "http://elsewhere"
    assert changed == ["declared"]
    file.write_text("[[model]]\nname = 7\n")
    with pytest.raises(CoderAIError, match="1"):
        await shelf.refresh()
    await shelf.refresh()
    assert shelf.catalogue.get("declared").service_url == "http://elsewhere"
    file.write_text("")
    await shelf.refresh()
    assert names(shelf) == ["packaged"]


async def test_who_has_waited_goes_on_with_the_entry_of_now(shelf: Shelf, rows: ModelRows) -> None:
    entry = rows.add(FAR, read_weights, trusted=True)
    await shelf.refresh()
    assert shelf.current(entry).max_instances != 9
    rows.update("far", {"max_instances": 9}, read_weights, trusted=True)
    await shelf.refresh()
    assert shelf.current(entry).max_instances == 9
    rows.remove("far")
    await shelf.refresh()
    with pytest.raises(ModelNotFound):
        shelf.current(entry)
