"""Whether the libraries are there that only some models need."""

from collections.abc import Sequence
from importlib.metadata import version

from infra.database import open_database, require_current
from infra.doctor import Check
from infra.errors import CoderAIError
from infra.settings import Settings
from workers.catalogue import Catalogue, file_entries
from workers.extras import INSTALL, LIBRARIES, missing_libraries
from workers.folders.reading import read_model
from workers.types import ModelEntry


def check_extras(settings: Settings) -> Check:
    """The extra `torch`, and which models need it."""
    missing = sorted({name for needed in LIBRARIES for name in missing_libraries(needed)})
    return judge_extra(missing, [entry.name for entry in _entries(settings) if entry.format in LIBRARIES])


def judge_extra(missing: Sequence[str], models: Sequence[str]) -> Check:
    """`missing` are libraries of the extra, `models` those that need it."""
    if not missing:
        return Check("extra torch", "ok", f"torch {version('torch')}")
    found = f"not installed: {', '.join(missing)}"
    if not models:
        return Check("extra torch", "ok", f"{found}; no model here needs it")
    return Check("extra torch", "warning", f"{found}; requests for {', '.join(models)} answer 501", INSTALL)


def _entries(settings: Settings) -> tuple[ModelEntry, ...]:
    """Every model that can be used. What keeps others from it is said by the other checks and `coderai models list`."""
    try:
        if not settings.database_url and not settings.at("coderai.db").exists():
            return file_entries(settings, read_model)[0]
        database = open_database(settings.sqlalchemy_url)
        try:
            require_current(database)
            return Catalogue.load(settings, database, (), read_model).entries
        finally:
            database.close()
    except CoderAIError:
        return ()
