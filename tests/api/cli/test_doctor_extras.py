"""Whether the doctor says that a library is missing, and for which models."""

from pathlib import Path

from api.cli.doctor_extras import check_extras, judge_extra
from infra.database import open_database
from infra.migrate import migrate
from infra.settings import Settings
from tests.model_folders import write_encoder
from workers.catalogue_rows import ModelRows
from workers.extras import INSTALL
from workers.folders.reading import read_model


def test_what_is_missing_matters_where_a_model_needs_it() -> None:
    assert judge_extra(["torch"], []).status == "ok"
    needed = judge_extra(["peft", "torch"], ["sd15"])
    assert (needed.status, needed.mend) == ("warning", INSTALL)
    assert needed.found == "not installed: peft, torch; requests for sd15 answer 501"


def test_models_of_the_file_and_of_the_database(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "bert")
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    settings = Settings(home=home, model=({"name": "declared", "path": str(folder)}, {"name": "gone", "path": "/no"}))
    assert names_in(settings) == ["declared"]
    assert not (home / "coderai.db").exists()
    database = open_database(settings.sqlalchemy_url)
    migrate(database)
    ModelRows(settings, database).add_local(folder, read_model, trusted=True)
    database.close()
    assert names_in(settings) == ["bert", "declared"]
    assert check_extras(settings).name == "extra torch"


def test_settings_that_cannot_be_used_are_another_check_s(tmp_path: Path) -> None:
    assert names_in(Settings(home=tmp_path, model=({"name": "x"},))) == []


def names_in(settings: Settings) -> list[str]:
    from api.cli.doctor_extras import _entries

    return [entry.name for entry in _entries(settings)]
