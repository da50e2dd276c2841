"""A folder's files: plain names only, JSON within limits, and no code."""

import os
from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from infra.types import Json
from tests.model_folders import write_encoder, write_json
from workers.folders.files import MOST_FILES, MOST_JSON_BYTES, Folder, require_no_code, walk


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a..b", "/etc", 7, None, "x" * 300, "a\0"])
def test_a_name_from_the_folder_s_own_json_leads_nowhere_else(tmp_path: Path, name: object) -> None:
    with pytest.raises(InvalidRequest, match="no plain name"):
        Folder(tmp_path).plain(name)


def test_a_folder_in_it_and_itself(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.folder("") is folder
    assert folder.folder("unet").path == tmp_path / "unet"
    assert folder.folder("unet").names() == ()


def test_json_is_an_object_that_is_there_and_small(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.optional("a.json") == {}
    with pytest.raises(InvalidRequest, match=r"has no a\.json"):
        folder.json("a.json")
    write_json(tmp_path / "a.json", [1])
    with pytest.raises(InvalidRequest, match="should be a JSON object"):
        folder.json("a.json")
    for content in (b"{", b"[" * 100_000, b"\xff"):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(InvalidRequest, match="is no JSON"):
            folder.json("a.json")
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(MOST_JSON_BYTES + 1)
    with pytest.raises(InvalidRequest, match="are the most"):
        folder.json("a.json")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(InvalidRequest, match=r"has no a\.json"):
        Folder(tmp_path).json("a.json")


@pytest.mark.parametrize("name", ["modeling.py", "unet/pipeline.PY", "a.so", "deep/er/x.pyc"])
def test_a_program_in_it_is_refused(tmp_path: Path, name: str) -> None:
    write_encoder(tmp_path)
    require_no_code(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(InvalidRequest, match="code that comes with a model is never run"):
        require_no_code(tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": {"AutoModel": "modeling.Model"}},
        {"text_config": {"auto_map": {"AutoModel": "a--b.Model"}}},
        {"model_args": [{"trust_remote_code": True}]},
        {"attn_implementation": "someone/kernel"},
        {"text_config": {"_attn_implementation": {"": "someone/kernel@main:attention"}}},
    ],
)
def test_a_configuration_that_asks_for_code_is_refused(tmp_path: Path, config: dict[str, Json]) -> None:
    write_json(tmp_path / "text_encoder" / "tokenizer_config.json", config)
    with pytest.raises(
        InvalidRequest, match=r"asks for code of its own \((auto_map|trust_remote_code|_?attn_impl.*)\)"
    ):
        require_no_code(tmp_path)
    write_json(
        tmp_path / "text_encoder" / "tokenizer_config.json",
        {"auto_map": None, "trust_remote_code": False, "attn_implementation": "sdpa"},
    )
    require_no_code(tmp_path)


def test_what_is_walked_through(tmp_path: Path) -> None:
    for name in ("b", "a/c", ".git/hooks.py", ".cache/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert [file.relative_to(tmp_path).as_posix() for file in walk(tmp_path)] == ["b", "link", "a/c"]


def test_a_folder_of_everything_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_FILES > 1000
    monkeypatch.setattr("workers.folders.files.MOST_FILES", 3)
    for name in "abcd":
        (tmp_path / name).write_text("")
    with pytest.raises(InvalidRequest, match="more than 3 files"):
        require_no_code(tmp_path)
    deep = tmp_path / "deep"
    deep.joinpath(*"12345678").mkdir(parents=True)
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        list(walk(deep))


def test_a_long_configuration_is_looked_at_too(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"padding": "x" * (2 << 20), "auto_map": {"AutoModel": "modeling.Model"}})
    with pytest.raises(InvalidRequest, match="asks for code"):
        require_no_code(tmp_path)


def test_an_adapter_would_lead_to_weights_that_lie_elsewhere(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    write_json(tmp_path / "adapter_config.json", {"base_model_name_or_path": "/somewhere/else"})
    with pytest.raises(InvalidRequest, match="adapter"):
        require_no_code(tmp_path)
