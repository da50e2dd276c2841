"""`coderai models`: what is added is listed and shown, without its key; what cannot be is refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.main import app
from infra.errors import CoderAIError, Conflict, InvalidRequest, ModelNotFound
from tests.api.cli.conftest import Run, beside, owner_of
from tests.api.conftest import StartFront
from tests.model_folders import write_sentence_model
from tests.tiny_gguf import write_tiny_llama
from workers.extras import LIBRARIES
from workers.types import ModelFormat


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny-llama.gguf")


def test_local_weights(run: Run, weights: Path) -> None:
    out = run("models", "add", str(weights), "--alias", "gpt-4o", "--max-instances", "2", "--context-tokens", "512")
    assert out == "added tiny-llama (chat, completions)\n"
    shown = json.loads(run("models", "show", "gpt-4o"))
    assert (shown["name"], shown["aliases"], shown["max_instances"]) == ("tiny-llama", ["gpt-4o"], 2)
    assert (shown["context_tokens"], shown["source"], shown["path"]) == (512, "database", str(weights))
    (line,) = [line for line in run("models", "list").splitlines() if "tiny-llama" in line]
    assert str(weights) in line
    assert "gpt-4o" in line
    with pytest.raises(Conflict):
        run("models", "add", str(weights))
    assert run("models", "remove", "tiny-llama") == "removed tiny-llama\n"
    assert weights.exists()
    with pytest.raises(ModelNotFound):
        run("models", "show", "tiny-llama")


def test_a_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_sentence_model(tmp_path / "all-MiniLM-L6-v2.1")
    monkeypatch.chdir(folder)
    assert run("models", "add", ".") == "added all-MiniLM-L6-v2.1 (embeddings)\n"
    shown = json.loads(run("models", "show", "all-MiniLM-L6-v2.1"))
    assert (shown["format"], shown["embedding_dimensions"], shown["context_tokens"]) == (
        "sentence-transformers",
        16,
        32,
    )
    assert shown["path"] == str(folder)


def test_a_missing_extra_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARIES, ModelFormat.SENTENCE_TRANSFORMERS, ("not_installed_anywhere",))
    words = ["models", "add", str(write_sentence_model(tmp_path / "bert"))]
    result = CliRunner().invoke(app, words)
    assert result.stdout == "added bert (embeddings)\n"
    assert result.stderr == (
        "it cannot be loaded yet: not_installed_anywhere not installed, pip install 'coderai[torch]'\n"
    )


def test_how_requests_are_spread(run: Run, weights: Path) -> None:
    options = ["--nodes", "cuda0", "--nodes", "cpu", "--max-parts", "4", "--min-items", "8", "--chunk-seconds", "20"]
    run("models", "add", str(weights), "--name", "spread", *options, "--hedge")
    assert json.loads(run("models", "show", "spread"))["distribute"] == {
        "enabled": True, "nodes": ["cuda0", "cpu"], "max_parts": 4, "min_items": 8, "chunk_seconds": 20.0,
        "hedge": True,
    }  # fmt: skip
    run("models", "add", str(weights), "--name", "whole", "--no-distribute")
    assert json.loads(run("models", "show", "whole"))["distribute"]["enabled"] is False
    with pytest.raises(InvalidRequest, match=r"distribute\.chunk_seconds"):
        run("models", "add", str(weights), "--name", "wrong", "--chunk-seconds", "1")


def test_a_relative_path_is_kept_as_an_absolute_one(run: Run, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(weights.parent)
    run("models", "add", "tiny-llama.gguf", "--name", "near")
    assert json.loads(run("models", "show", "near"))["path"] == str(weights)


def test_a_far_service_s_key_comes_from_standard_input_and_is_never_shown(run: Run) -> None:
    words = ("models", "add", "far", "--service-url", "http://box:1/v1/", "--served-model", "big", "--api-key-stdin")
    assert run(*words, "--capability", "embeddings", stdin="sk-hush\nmore\n") == "added far (embeddings)\n"
    shown = run("models", "show", "far")
    assert "hush" not in shown
    entry = json.loads(shown)
    assert (entry["api_key"], entry["service_url"], entry["served_model"]) == ("***", "http://box:1", "big")
    assert "hush" not in run("models", "list")


def test_a_far_service_without_more_does_chat(run: Run) -> None:
    assert run("models", "add", "far", "--service-url", "http://box") == "added far (chat, completions)\n"


def test_a_far_service_may_make_images(run: Run) -> None:
    words = ("models", "add", "far", "--service-url", "http://box", "--served-model", "dall-e-3")
    assert run(*words, "--capability", "images", "--capability", "video") == "added far (images, video)\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.gguf",), "there is no file or folder 'missing.gguf'"),
        (("far", "--service-url", "ftp://box"), "service_url"),
        (("far", "--service-url", "http://ann:pw@box"), "api_key"),
        (("far", "--service-url", "http://box", "--capability", "dance"), "capabilities"),
        (("bad name", "--service-url", "http://box"), "name"),
        (("far", "--service-url", "http://box", "--max-instances", "0"), "max_instances"),
    ],
)
def test_what_cannot_be_added(run: Run, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        run("models", "add", *words)
    assert "pw" not in caught.value.message
    assert "far" not in run("models", "list")


def test_a_file_that_is_no_weights(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("hello")
    with pytest.raises(InvalidRequest, match="GGUF"):
        run("models", "add", str(tmp_path / "notes.gguf"))


def test_models_of_the_file_are_listed_and_read_only(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "coderai.toml").write_text('[[model]]\nname = "declared"\nservice_url = "http://box"\n')
    (line,) = [line for line in run("models", "list").splitlines() if "declared" in line]
    assert "file" in line
    with pytest.raises(Conflict, match=r"coderai\.toml"):
        run("models", "remove", "declared")


def test_an_old_models_json_is_taken_over(run: Run, tmp_path: Path, weights: Path) -> None:
    path = tmp_path / "models.json"
    rows = [{"name": "tiny", "path": str(weights)}, {"name": "gone", "path": str(tmp_path / "no.gguf")}]
    path.write_text(json.dumps({"gguf_models": rows}))
    said = run("models", "import", str(path), "--dry-run")
    assert "gone" in said
    with pytest.raises(ModelNotFound):
        run("models", "show", "tiny")
    run("models", "import", str(path))
    assert json.loads(run("models", "show", "tiny"))["path"] == str(weights)
    with pytest.raises(InvalidRequest, match="cannot read"):
        run("models", "import", str(tmp_path / "missing.json"))


async def test_load_and_unload_in_the_running_server(start_front: StartFront, monkeypatch: pytest.MonkeyPatch) -> None:
    front = await start_front()
    owner_of(front, monkeypatch)
    assert (await beside("models", "load", "gpt-4o")).stdout.endswith("tiny is ready on cpu/tiny\n")
    assert [engine.id for engine in front.services.fleet.engines()] == ["cpu/tiny"]
    assert (await beside("models", "unload", "tiny")).stdout == "tiny: 1 engine(s) unloaded\n"
    refused = await beside("models", "load", "nope")
    assert isinstance(refused.exception, CoderAIError)
    assert "Model 'nope' is not available" in refused.exception.message
