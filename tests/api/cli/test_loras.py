"""`coderai loras`: adapters that every key may use."""

import hashlib
from pathlib import Path

import pytest

from infra.errors import Conflict, InvalidRequest, NotFound, PayloadTooLarge
from tests.api.cli.conftest import Run
from tests.tiny_loras import safetensors

GOOD = safetensors()
REF = f"sha256:{hashlib.sha256(GOOD).hexdigest()}"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    path = tmp_path / "style.safetensors"
    path.write_bytes(GOOD)
    return path


def files(home: Path) -> list[Path]:
    return [path for path in (home / "files").rglob("*") if path.is_file()]


def test_one_is_copied_listed_and_removed(run: Run, home: Path, adapter: Path) -> None:
    out = run("loras", "add", "style", str(adapter), "--base-model", "[sd15]")
    assert out == f"added style: rank 4, {len(GOOD)} bytes, {REF}\n"
    adapter.unlink()
    (kept,) = files(home)
    assert kept.read_bytes() == GOOD
    (line,) = [line for line in run("loras", "list").splitlines() if "style" in line]
    for word in ("[sd15]", " 4 ", str(len(GOOD)), "internal", "yes", REF):
        assert word in line
    assert run("loras", "remove", "style") == "removed style\n"
    assert files(home) == []
    assert "style" not in run("loras", "list")


def test_one_may_be_removed_by_its_id(run: Run, adapter: Path) -> None:
    run("loras", "add", "style", str(adapter))
    assert run("loras", "remove", REF) == "removed style\n"


def test_what_cannot_be_added_leaves_nothing(
    run: Run, home: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickle, other = tmp_path / "pickle.safetensors", tmp_path / "other.safetensors"
    pickle.write_bytes(b"\x80\x02}q\x00." + b"\0" * 50)
    other.write_bytes(safetensors(fill=b"\x02"))
    with pytest.raises(InvalidRequest, match="can run code"):
        run("loras", "add", "style", str(pickle))
    with pytest.raises(InvalidRequest, match="cannot be called"):
        run("loras", "add", "../style", str(adapter))
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InvalidRequest, match="cannot read"):
            run("loras", "add", "style", str(path))
    assert files(home) == []
    run("loras", "add", "style", str(adapter))
    with pytest.raises(Conflict, match="other content"):
        run("loras", "add", "style", str(other))
    with pytest.raises(NotFound, match="near names: style"):
        run("loras", "remove", "styl")
    monkeypatch.setenv("CODERAI_LORAS__MAX_MB", "1")
    other.write_bytes(safetensors({"a.lora_A.weight": (1, 1 << 19), "a.lora_B.weight": (1 << 19, 1)}))
    with pytest.raises(PayloadTooLarge, match=r"loras\.max_mb"):
        run("loras", "add", "large", str(other))
    assert len(files(home)) == 1
