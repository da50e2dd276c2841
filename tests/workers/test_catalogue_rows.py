"""Models added, changed and removed while running."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.database import Database, open_database
from infra.errors import Conflict, Forbidden, InvalidRequest, ModelNotFound
from infra.migrate import migrate
from infra.settings import Settings
from infra.types import ModelName
from tests.tiny_gguf import write_tiny_embedder, write_tiny_llama
from workers.catalogue import Catalogue
from workers.catalogue_rows import ModelRows
from workers.entries import shown
from workers.types import Capability, ModelEntry, ModelFormat
from workers.weights import read_weights

FILE_ROW = {"name": "declared", "aliases": ["main"], "service_url": "http://x"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "models").mkdir()
    return Settings(home=tmp_path, model=(FILE_ROW,))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/coderai.db")
    migrate(opened)
    yield opened
    opened.close()


@pytest.fixture
def rows(settings: Settings, database: Database) -> ModelRows:
    return ModelRows(settings, database)


def far(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "service_url": "http://gpu-box/v1", **fields}


def test_a_far_model_is_added_changed_and_removed(rows: ModelRows, settings: Settings, database: Database) -> None:
    empty = Catalogue.load(settings, database, ())
    added = rows.add(far("far", served_model="m", api_key="hush"), read_weights, trusted=False)
    catalogue = empty.refreshed(settings, database, ())
    assert catalogue.get("far") == added
    assert added.source == "database"

    changes = {"max_instances": 9, "api_key": "***", "aliases": ["f"], "served_model": None}
    changed = rows.update("far", changes, read_weights, trusted=False)
    assert (changed.max_instances, changed.served_model) == (9, None)
    assert changed.api_key is not None
    assert changed.api_key.get_secret_value() == "hush"
    catalogue = catalogue.refreshed(settings, database, ())
    assert catalogue.get("f") == changed
    assert "hush" not in str(shown(catalogue.get("f")))

    rows.remove("far")
    assert catalogue.refreshed(settings, database, ()).find("far") is None


def test_a_local_model_is_described_by_its_weights(rows: ModelRows, settings: Settings, database: Database) -> None:
    path = write_tiny_llama(settings.at("models", "tiny.gguf"))
    entry = rows.add_local(path, read_weights, trusted=False, max_instances=2)
    assert (entry.name, entry.path, entry.max_instances) == ("tiny", path, 2)
    assert Catalogue.load(settings, database, ()).get("tiny") == entry

    other = write_tiny_embedder(settings.at("models", "other.gguf"))
    changed = rows.update("tiny", {"path": str(other)}, read_weights, trusted=False)
    assert (changed.capabilities, changed.max_instances) == ((Capability.EMBEDDINGS,), 2)
    assert rows.update("tiny", {"keep_resident": True}, read_weights, trusted=False).path == other


def test_only_the_owner_names_any_path(rows: ModelRows, tmp_path: Path) -> None:
    outside = write_tiny_llama(tmp_path / "outside.gguf")
    with pytest.raises(Forbidden):
        rows.add_local(outside, read_weights, trusted=False)
    rows.add(far("far"), read_weights, trusted=False)
    with pytest.raises(Forbidden):
        rows.update("far", {"path": str(outside), "service_url": None}, read_weights, trusted=False)
    assert rows.add_local(outside, read_weights, trusted=True).path == outside


def test_what_is_no_weights_is_not_added(rows: ModelRows, settings: Settings, database: Database) -> None:
    settings.at("models", "evil.gguf").write_bytes(b"\x80\x04not weights")
    with pytest.raises(InvalidRequest, match="pickle"):
        rows.add_local(settings.at("models", "evil.gguf"), read_weights, trusted=False)
    assert Catalogue.load(settings, database, ()).find("evil") is None


@pytest.mark.parametrize(
    ("row", "param", "words"),
    [
        (far("far"), "name", "taken by the model 'far'"),
        (far("f"), "name", "taken by the model 'far'"),
        (far("new", aliases=["far"]), "aliases", "taken by the model 'far'"),
        (far("new", aliases=["f"]), "aliases", "taken by the model 'far'"),
        (far("new", aliases=["new"]), "aliases", "its own name"),
        (far("declared"), "name", r"coderai\.toml"),
        (far("new", aliases=["main"]), "name", r"coderai\.toml"),
    ],
)
def test_a_name_that_is_taken(
    rows: ModelRows, settings: Settings, database: Database, row: dict[str, Any], param: str, words: str
) -> None:
    rows.add(far("far", aliases=["f"]), read_weights, trusted=True)
    before = Catalogue.load(settings, database, ())
    with pytest.raises(Conflict, match=words) as caught:
        rows.add(row, read_weights, trusted=True)
    assert caught.value.param == param
    assert before.refreshed(settings, database, ()) is before


def test_file_rows_are_read_only_here(rows: ModelRows) -> None:
    for change in (lambda: rows.remove("declared"), lambda: rows.update("declared", {}, read_weights, trusted=True)):
        with pytest.raises(Conflict, match=r"declared in .*coderai\.toml: change it there"):
            change()


def test_packaged_models_are_read_only_here(rows: ModelRows, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = ModelEntry(
        name=ModelName("small"),
        aliases=("s",),
        format=ModelFormat.GGUF,
        capabilities=(Capability.CHAT,),
        path=Path("/small.gguf"),
    )
    monkeypatch.setattr("workers.catalogue_rows.packaged_entries", lambda _home: (packaged,))
    for name in ("small", "s"):
        with pytest.raises(Conflict, match="comes in a Python package"):
            rows.remove(name)
    assert rows.add(far("small"), read_weights, trusted=False).source == "database"
    rows.remove("small")


def test_an_unknown_model_cannot_be_changed(rows: ModelRows) -> None:
    rows.add(far("qwen-coder"), read_weights, trusted=True)
    with pytest.raises(ModelNotFound, match="did you mean 'qwen-coder'"):
        rows.remove("qwen")
    with pytest.raises(ModelNotFound):
        rows.update("other", {}, read_weights, trusted=True)


def test_a_change_that_cannot_be_used_changes_nothing(rows: ModelRows, settings: Settings, database: Database) -> None:
    rows.add(far("far"), read_weights, trusted=True)
    before = Catalogue.load(settings, database, ())
    for changes in ({"max_instances": 0}, {"argv": ["sh"]}, {"name": "other"}, {"service_url": "http://u:p@x"}):
        with pytest.raises(InvalidRequest):
            rows.update("far", changes, read_weights, trusted=True)
    assert before.refreshed(settings, database, ()) is before


def test_several_are_added_together_or_not_at_all(rows: ModelRows, settings: Settings, database: Database) -> None:
    entries = [rows.checked(far(name), read_weights, trusted=True) for name in ("a", "b", "a")]
    with pytest.raises(Conflict):
        rows.add_all(entries)
    assert Catalogue.load(settings, database, ()).find("a") is None
    rows.add_all(entries[:2])
    assert Catalogue.load(settings, database, ()).find("b") is not None
