"""`coderai models`: what is added is listed and shown, without its key; what cannot be is refused."""

import json
from pathlib import Path

import pytest

from infra.errors import CoderAIError, Conflict, InvalidRequest, ModelNotFound
from tests.api.cli.conftest import Run, beside, owner_of
from tests.api.conftest import StartFront
from tests.tiny_gguf import write_tiny_llama


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.gguf",), "there is no file 'missing.gguf'"),
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
