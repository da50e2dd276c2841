"""Where things stand: tests beside what they test, nothing that only one machine has, deployments that load."""

import importlib
import re
from pathlib import Path

import yaml

from tests.repo.tree import PACKAGES, ROOT, files, modules, read

UNMIRRORED = {
    "infra/clock.py": "two names for functions of the standard library",
    "infra/errors.py": "classes with no behaviour; api/errors.py maps every one, and its test walks the tree",
    "infra/types.py": "names and one base model, which tests/repo/test_code.py checks",
    "infra/sections.py": "fields and their limits; tests/infra/test_settings.py reads them",
    "flows/job_executor.py": "a step as a task run; tests/flows/test_jobs.py has every way it ends, with a worker",
    "flows/job_office.py": "a record and a protocol; every test with a worker process has it whole",
    "infra/prefect_address.py": "a record; the tests of companions, proxy and API client have it whole",
    "infra/prefect_child/__main__.py": "run as a process by tests/infra/prefect_child/test_main.py",
    "infra/prefect_child/background.py": "what the child does beside serving; every test of a real child has it whole",
    "infra/prefect_child/batch.py": "shapes; the tests of drainer and writer use them all",
    "infra/prefect_child/crash.py": "in the suite of tests/infra/prefect_child/recording.py, on SQLite and PostgreSQL",
    "infra/prefect_child/route.py": "tests/infra/prefect_child/test_server.py",
    "api/openai/schemas/ocr.py": "shapes; tests/api/media/test_ocr.py uses them all",
    "workers/documents/images.py": "a program; tests/workers/documents and tests/system/test_ocr.py run it",
    "workers/documents/pdfs.py": "the same",
    "workers/documents/serving.py": "what both of these programs are made of",
    "infra/supervisor/types.py": "shapes and a protocol; the supervisor's tests use them all",
    "infra/migrate.py": "tests/infra/test_database.py",
    "infra/tables.py": "tests/infra/test_database.py",
    "infra/migrations/env.py": "Alembic's own entry, run by every test that opens a database",
    "api/services.py": "a record of parts; every test with a front has it whole",
    "tasks/channel.py": "a protocol; the tests of api/asgi.py, its one implementation, and of the executor use it",
    "workers/types.py": "shapes; the tests of router, catalogue and planners use them all",
    "workers/folders/facts.py": "a record; the tests of the readers beside it use it all",
    "workers/wire.py": "shapes; the tests of the engine process and the fleet use them all",
}
"""Modules without a test file at the mirrored path: why, or the test file that stands in for it."""

NO_PACKAGES = {"tests/conformance/plugin": "a folder on another project's PYTHONPATH, whose module stands alone"}
"""Folders of code that are not packages: why."""

A_MACHINE = re.compile(r"(?<![\w.$}:>])/(tmp|work|root|home|Users)(?=/|\b(?!\w))")


def test_every_module_has_its_test() -> None:
    missing = []
    for module in modules():
        path = Path(module.path)
        mirrored = Path("tests", path.parent, f"test_{path.name}")
        if path.name != "__init__.py" and module.path not in UNMIRRORED and not (ROOT / mirrored).exists():
            missing.append(f"{module.path}: no {mirrored}")
    assert not missing, "\n".join(sorted(missing))


def test_the_table_of_unmirrored_modules_is_current() -> None:
    """A module that has got its test leaves the table; one that was removed does too."""
    stale = [
        name
        for name in UNMIRRORED
        if name not in files() or (ROOT / "tests" / Path(name).with_name(f"test_{Path(name).name}")).exists()
    ]
    assert not stale, "\n".join(sorted(stale))


def test_the_stand_ins_test_what_they_stand_for() -> None:
    """Where the table names a test file, that file imports the module."""
    wrong = [
        f"{module}: {why} does not import it"
        for module, why in UNMIRRORED.items()
        if why.startswith("tests/") and module.removesuffix(".py").replace("/", ".") not in read(why)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_code_says_what_it_is_for() -> None:
    folders = {Path(module.path).parent for module in modules(*PACKAGES, "tests", "docs", "benchmarks")}
    mute = [
        folder.as_posix()
        for folder in folders
        if "versions" not in folder.parts
        and folder.as_posix() not in NO_PACKAGES
        and not _docstring(folder / "__init__.py")
    ]
    assert not mute, "\n".join(sorted(mute))


def test_no_path_of_one_machine() -> None:
    """What works only where it was written does not belong into the repository."""
    home = Path.home().name
    words = [A_MACHINE]
    if len(home) > 4:  # "root" and "user" are words too
        words.append(re.compile(rf"\b{re.escape(home)}\b"))
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name in files()
        if name != "LICENSE"
        for number, line in enumerate(read(name).splitlines(), 1)
        if any(word.search(line) for word in words)
    ]
    assert not found, "\n".join(sorted(found))


def test_every_deployment_can_be_imported() -> None:
    """Prefect replaces a flow that cannot be imported by a placeholder and says nothing; here it fails."""
    declared = yaml.safe_load(read("prefect.yaml"))
    assert set(declared) >= {"name", "deployments"}
    for deployment in declared["deployments"]:
        module, _, function = deployment["entrypoint"].rpartition(".")
        assert re.fullmatch(r"flows(\.\w+)+", module), (
            f"{deployment['name']}: give a module path such as flows.jobs.chat"
        )
        assert callable(getattr(importlib.import_module(module), function))


def _docstring(name: Path) -> bool:
    path = ROOT / name
    return path.exists() and path.read_text(encoding="utf-8").lstrip().startswith('"""')
