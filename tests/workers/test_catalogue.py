"""Three sources, one index; names that are near; bad rows named."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.database import Database, bump_revision, open_database
from infra.errors import ModelNotFound, SettingsInvalid
from infra.migrate import migrate
from infra.settings import ModelsSettings, Settings
from infra.tables import ModelRow
from infra.types import Json, ModelName
from tests.tiny_gguf import write_tiny_llama
from workers.catalogue import Catalogue, file_entries
from workers.entries import entry_from_row
from workers.types import Capability, ModelEntry
from workers.weights import read_weights


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/coderai.db")
    migrate(opened)
    yield opened
    opened.close()


def settings_with(tmp_path: Path, *rows: dict[str, Any], packaged: bool = True) -> Settings:
    return Settings(home=tmp_path, model=rows, models=ModelsSettings(packaged=packaged))


def far(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "service_url": "http://gpu-box", **fields}


def packaged(name: str, *aliases: str) -> ModelEntry:
    return entry_from_row(far(name, aliases=aliases), "package")


def put(database: Database, name: str, entry: dict[str, Json]) -> None:
    now = datetime.now(UTC)
    with database.write() as session:
        bump_revision(session, "models")
        session.add(ModelRow(name=name, entry=entry, created_at=now, updated_at=now))


def test_an_empty_install_has_an_empty_catalogue(tmp_path: Path, database: Database) -> None:
    catalogue = Catalogue.load(settings_with(tmp_path), database, ())
    assert (catalogue.entries, catalogue.problems) == ((), ())
    with pytest.raises(ModelNotFound, match=r"^Model 'x' is not available, see GET /v1/models$"):
        catalogue.get("x")


def test_file_over_database_over_package(tmp_path: Path, database: Database) -> None:
    put(database, "one", far("one"))
    put(database, "two", far("two"))
    settings = settings_with(tmp_path, far("one"))
    catalogue = Catalogue.load(settings, database, (packaged("one"), packaged("two"), packaged("three", "drei")))
    assert [(entry.name, entry.source) for entry in catalogue.entries] == [
        ("one", "file"), ("three", "package"), ("two", "database"),
    ]  # fmt: skip
    assert catalogue.get("drei") is catalogue.get("three")


def test_an_alias_of_a_higher_source_hides_a_name_below(tmp_path: Path, database: Database) -> None:
    settings = settings_with(tmp_path, far("mine", aliases=["gpt-4", "three"]))
    catalogue = Catalogue.load(settings, database, (packaged("three", "drei"), packaged("four", "gpt-4")))
    assert [entry.name for entry in catalogue.entries] == ["four", "mine"]
    assert catalogue.get("three").name == "mine"
    assert catalogue.get("gpt-4").name == "mine"
    assert catalogue.find("drei") is None


def test_packaged_models_can_be_left_out(tmp_path: Path, database: Database) -> None:
    settings = settings_with(tmp_path, packaged=False)
    assert Catalogue.load(settings, database, (packaged("one"),)).entries == ()


def test_near_names_are_told(tmp_path: Path, database: Database) -> None:
    rows = [far(name) for name in ("Qwen2.5-Coder-0.5B-Instruct", "smollm2", "all-minilm-l6-v2", "x")]
    catalogue = Catalogue.load(settings_with(tmp_path, *rows), database, ())
    assert catalogue.near("qwen2.5-coder-0.5b-instruct") == ("Qwen2.5-Coder-0.5B-Instruct",)
    assert catalogue.near("QWEN2.5") == ("Qwen2.5-Coder-0.5B-Instruct",)
    assert catalogue.near("smolm2") == ("smollm2",)
    assert catalogue.near("sentence-transformers/all-MiniLM-L6-v2") == ("all-minilm-l6-v2",)
    assert catalogue.near("gpt-4o") == ()
    assert len(catalogue.near("l")) <= 3
    with pytest.raises(ModelNotFound) as caught:
        catalogue.get("SmolLM")
    assert caught.value.message == ("Model 'SmolLM' is not available; did you mean 'smollm2'?, see GET /v1/models")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_an_endless_name_costs_little(tmp_path: Path, database: Database) -> None:
    rows = [far(f"model-{number}") for number in range(300)]
    catalogue = Catalogue.load(settings_with(tmp_path, *rows), database, ())
    with pytest.raises(ModelNotFound) as caught:
        catalogue.get("model-" * 1_000_000)
    assert len(caught.value.message) < 500


def test_a_bad_row_is_named_with_its_number_and_field(tmp_path: Path, database: Database) -> None:
    settings = settings_with(tmp_path, far("good"), far("bad", max_instances="many", api_key="hush"))
    with pytest.raises(SettingsInvalid, match=r"^\[\[model\]\] 2 \('bad'\) cannot be used: field 'max_inst") as caught:
        Catalogue.load(settings, database, ())
    assert caught.value.param == "model.1.max_instances"
    assert "hush" not in caught.value.message


@pytest.mark.parametrize(
    ("rows", "param"),
    [
        ((far("a"), far("a")), "model.1.name"),
        ((far("a"), far("b", aliases=["a"])), "model.1.aliases"),
        ((far("a", aliases=["b"]), far("b")), "model.1.name"),
        (({"service_url": "http://x"},), "model.0.name"),
        ((far("a", argv=["sh", "-c", "id"]),), "model.0.argv"),
        (({"name": "a", "path": "/x.gguf"},), "model.0.format"),
        (({"name": "a"},), "model.0.format"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, rows: tuple[dict[str, Any], ...], param: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        file_entries(settings_with(tmp_path, *rows))
    assert caught.value.param == param


def test_a_local_row_is_filled_in_from_its_weights(tmp_path: Path, database: Database) -> None:
    (tmp_path / "models").mkdir()
    write_tiny_llama(tmp_path / "models" / "tiny.gguf")
    settings = settings_with(tmp_path, {"name": "tiny", "path": "models/tiny.gguf"})
    entry = Catalogue.load(settings, database, (), read_weights).get("tiny")
    assert entry.path == tmp_path / "models" / "tiny.gguf"
    assert entry.capabilities == (Capability.CHAT, Capability.COMPLETIONS)
    rows = ({"name": "gone", "path": "models/gone.gguf"}, {"name": "tiny", "path": "models/tiny.gguf"})
    left = Catalogue.load(settings_with(tmp_path, *rows), database, (), read_weights)
    assert [entry.name for entry in left.entries] == ["tiny"]
    (problem,) = left.problems
    assert problem.startswith("[[model]] 1 ('gone') cannot be used")


def test_a_stored_row_that_cannot_be_used_takes_nothing_else_away(tmp_path: Path, database: Database) -> None:
    put(database, "good", far("good"))
    put(database, "bad", far("bad", argv=["sh"], api_key="hush"))
    catalogue = Catalogue.load(settings_with(tmp_path), database, ())
    assert [entry.name for entry in catalogue.entries] == [ModelName("good")]
    assert len(catalogue.problems) == 1
    assert "'bad' cannot be used: field 'argv'" in catalogue.problems[0]
    assert "hush" not in catalogue.problems[0]


def test_a_snapshot_is_kept_until_something_changes(tmp_path: Path, database: Database) -> None:
    settings = settings_with(tmp_path, far("one"))
    old = Catalogue.load(settings, database, ())
    assert old.refreshed(settings, database, ()) is old
    put(database, "two", far("two"))
    new = old.refreshed(settings, database, ())
    assert [entry.name for entry in new.entries] == ["one", "two"]
    assert [entry.name for entry in old.entries] == ["one"]
    assert new.refreshed(settings, database, ()) is new
    again = new.refreshed(settings_with(tmp_path, far("three")), database, ())
    assert [entry.name for entry in again.entries] == ["three", "two"]
