"""Rows become entries; secrets, programs and foreign paths do not get through."""

import traceback
from pathlib import Path

import pytest

from infra.errors import Forbidden, InvalidRequest
from infra.settings import ModelsSettings, Settings
from tests.model_folders import write_cross_encoder, write_sentence_model, write_voice
from tests.tiny_gguf import EMBEDDING_DIMENSIONS, write_tiny_embedder, write_tiny_llama, write_tiny_reranker
from workers.entries import BadField, checked_path, entry_from_row, normalise_service_url, shown, stored
from workers.folders.reading import read_model
from workers.types import Capability, ModelFormat, Pooling
from workers.weights import read_weights

SECRET = "sk-far-side-secret"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://gpu-box:8080", "http://gpu-box:8080"),
        ("http://gpu-box:8080/", "http://gpu-box:8080"),
        ("https://gpu-box/v1", "https://gpu-box"),
        ("https://gpu-box/v1//", "https://gpu-box"),
        ("https://host/openai/v1/", "https://host/openai"),
        ("https://host/v1beta", "https://host/v1beta"),
        ("http://[::1]:9/v1", "http://[::1]:9"),
    ],
)
def test_a_service_url_loses_v1_and_slashes(given: str, kept: str) -> None:
    assert normalise_service_url(given) == kept


@pytest.mark.parametrize(
    "bad",
    [
        "", "gpu-box:8080", "file:///etc/passwd", "ftp://x/", "javascript:alert(1)", "http://", "http:///v1",
        "http://user@host", "http://user:hush@host/v1", "http://host:99999", "http://host/ v1", "http://ho\nst",
        "http://host/v1?key=hush", "http://host/#x", "http://[::1", "http:\\\\host",
    ],
)  # fmt: skip
def test_a_service_url_of_another_kind_is_refused_without_repeating_it(bad: str) -> None:
    with pytest.raises(BadField) as caught:
        normalise_service_url(bad)
    assert caught.value.param == "service_url"
    assert "hush" not in caught.value.message


def test_a_far_service_needs_a_name_and_an_address_only() -> None:
    entry = entry_from_row({"name": "far", "service_url": "http://gpu-box:8080/v1"}, "database")
    assert entry.format is ModelFormat.SERVICE
    assert entry.capabilities == (Capability.CHAT, Capability.COMPLETIONS)
    assert entry.service_url == "http://gpu-box:8080"


def test_the_key_of_a_far_service_is_stored_and_never_shown() -> None:
    row = {"name": "far", "service_url": "http://x", "api_key": SECRET, "max_instances": 9}
    entry = entry_from_row(row, "database")
    assert stored(entry)["api_key"] == SECRET
    assert entry_from_row(stored(entry), "database") == entry
    assert shown(entry)["api_key"] == "***"
    assert SECRET not in f"{entry!r} {shown(entry)}"
    with pytest.raises(BadField, match="give the key"):
        entry_from_row({**row, "api_key": "***"}, "database")


@pytest.mark.parametrize("field", ["argv", "command", "env", "venv", "server_bin", "llama_server_bin", "entrypoint"])
def test_a_row_cannot_name_a_program(field: str) -> None:
    with pytest.raises(BadField, match="unknown") as caught:
        entry_from_row({"name": "far", "service_url": "http://x", field: ["sh"]}, "file")
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"max_instances": 0}, "max_instances"),
        ({"name": "two words"}, "name"),
        ({"capabilities": ["chat", "flying"]}, "capabilities.1"),
        ({"aliases": ["fine", "two\nlines"]}, "aliases"),
        ({"aliases": [""]}, "aliases"),
        ({"api_key": [SECRET]}, "api_key"),
        ({"source": "package"}, "source"),
        ({"path": "/x.gguf"}, None),
    ],
)
def test_a_bad_field_is_named_and_the_key_stays_out_of_the_traceback(change: dict[str, object], param: str) -> None:
    row: dict[str, object] = {"name": "far", "service_url": "http://x", "api_key": SECRET, **change}
    with pytest.raises(BadField) as caught:
        entry_from_row(row, "database")
    assert caught.value.param == param
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_the_weights_say_what_the_row_leaves_out(tmp_path: Path) -> None:
    paths = {
        "chat": write_tiny_llama(tmp_path / "chat.bin"),
        "embed": write_tiny_embedder(tmp_path / "embed.gguf"),
        "rank": write_tiny_reranker(tmp_path / "rank.gguf"),
    }
    entries = {name: entry_from_row({"name": name, "path": path}, "file", read_weights) for name, path in paths.items()}
    assert entries["chat"].capabilities == (Capability.CHAT, Capability.COMPLETIONS)
    assert entries["chat"].format is ModelFormat.GGUF
    assert entries["chat"].weights_bytes == paths["chat"].stat().st_size
    assert entries["chat"].embedding_dimensions is None
    assert entries["embed"].capabilities == (Capability.EMBEDDINGS,)
    assert entries["embed"].embedding_dimensions == EMBEDDING_DIMENSIONS
    assert entries["rank"].capabilities == (Capability.RERANK,)
    assert (entries["rank"].pooling, entries["rank"].rerank_method) == (Pooling.RANK, "cross_encoder")
    own = {"name": "chat", "path": str(paths["chat"]), "capabilities": ["completions"]}
    assert entry_from_row(own, "file", read_weights).capabilities == (Capability.COMPLETIONS,)


def test_a_pipeline_draws_one_image_at_a_time_unless_its_row_says_otherwise() -> None:
    row = {"name": "sd", "path": "/sd", "format": "diffusers", "capabilities": ["images"]}
    assert entry_from_row(row, "file").max_instances == 1
    assert entry_from_row(row | {"max_instances": 2}, "file").max_instances == 2


def test_a_folder_says_what_the_row_leaves_out(tmp_path: Path) -> None:
    embed = entry_from_row({"name": "e", "path": write_sentence_model(tmp_path / "e")}, "file", read_model)
    assert (embed.format, embed.capabilities) == (ModelFormat.SENTENCE_TRANSFORMERS, (Capability.EMBEDDINGS,))
    assert (embed.architecture, embed.embedding_dimensions, embed.context_tokens) == ("bert", 16, 32)
    assert (embed.pooling, embed.rerank_method) == (Pooling.MEAN, None)
    own = {"name": "e", "path": tmp_path / "e", "context_tokens": 64}
    assert entry_from_row(own, "file", read_model).context_tokens == 64
    rank = entry_from_row({"name": "r", "path": write_cross_encoder(tmp_path / "r")}, "file", read_model)
    assert (rank.capabilities, rank.rerank_method, rank.pooling) == (
        (Capability.RERANK,), "cross_encoder", Pooling.RANK,
    )  # fmt: skip
    voice = entry_from_row({"name": "v", "path": write_voice(tmp_path / "v")}, "file", read_model)
    assert (voice.path, voice.capabilities) == (tmp_path / "v", (Capability.TTS,))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "home" / "models").mkdir(parents=True)
    (tmp_path / "weights").mkdir()
    return Settings(home=tmp_path / "home", models=ModelsSettings(roots=(tmp_path / "weights",)))


def test_a_path_over_http_lies_below_the_roots(settings: Settings, tmp_path: Path) -> None:
    inside, home, outside = tmp_path / "weights" / "a.gguf", settings.at("models", "b.gguf"), tmp_path / "c.gguf"
    for path in (inside, home, outside):
        path.touch()
    assert checked_path(inside, settings, trusted=False) == inside
    assert checked_path(home, settings, trusted=False) == home
    assert checked_path(outside, settings, trusted=True) == outside


def test_a_folder_over_http_lies_below_the_roots_and_has_no_way_out(settings: Settings, tmp_path: Path) -> None:
    inside, outside = write_sentence_model(tmp_path / "weights" / "bert"), write_sentence_model(tmp_path / "other")
    assert checked_path(inside, settings, trusted=False) == inside
    with pytest.raises(Forbidden):
        checked_path(outside, settings, trusted=False)
    (inside / "1_Pooling" / "config.json").unlink()
    (inside / "1_Pooling" / "config.json").symlink_to(outside / "1_Pooling" / "config.json")
    with pytest.raises(Forbidden):
        checked_path(inside, settings, trusted=False)
    assert checked_path(inside, settings, trusted=True) == inside
    (inside / "1_Pooling" / "config.json").unlink()
    (inside / "1_Pooling").rmdir()
    (inside / "1_Pooling").symlink_to(outside / "1_Pooling")
    with pytest.raises(Forbidden):
        checked_path(inside, settings, trusted=False)


@pytest.mark.parametrize(
    "path", ["{t}/c.gguf", "{t}/weights/../c.gguf", "{t}/weights/link", "/etc/passwd", "{t}/missing", "a.gguf", "~/x"]
)
def test_a_path_elsewhere_is_refused_whether_it_exists_or_not(settings: Settings, tmp_path: Path, path: str) -> None:
    (tmp_path / "c.gguf").touch()
    (tmp_path / "weights" / "link").symlink_to(tmp_path / "c.gguf")
    with pytest.raises(Forbidden, match="lies below one of") as caught:
        checked_path(path.format(t=tmp_path), settings, trusted=False)
    assert caught.value.param == "path"


@pytest.mark.parametrize("path", ["{t}/weights/missing.gguf", "{t}/weights/nul\0", "{t}/weights/" + "x" * 300])
def test_a_path_must_be_there(settings: Settings, tmp_path: Path, path: str) -> None:
    for trusted in (True, False):
        with pytest.raises(InvalidRequest) as caught:
            checked_path(path.format(t=tmp_path), settings, trusted=trusted)
        assert caught.value.param == "path"
