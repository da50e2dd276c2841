"""The one door: what a path is, be it a file or a folder."""

from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from tests.model_folders import write_encoder, write_json, write_pipeline, write_voice, write_whisper
from tests.tiny_gguf import write_tiny_llama
from workers.folders.reading import read_model
from workers.types import ModelFormat


def test_the_format_is_read_from_the_files(tmp_path: Path) -> None:
    formats = {
        write_encoder(tmp_path / "stable-diffusion"): ModelFormat.SENTENCE_TRANSFORMERS,
        write_pipeline(tmp_path / "whisper"): ModelFormat.DIFFUSERS,
        write_whisper(tmp_path / "bert"): ModelFormat.WHISPER,
        write_voice(tmp_path / "x.gguf").parent: ModelFormat.PIPER,
        write_tiny_llama(tmp_path / "model.safetensors"): ModelFormat.GGUF,
    }
    assert {path: read_model(path).format for path in formats} == formats


def test_a_voice_may_be_named_by_its_network(tmp_path: Path) -> None:
    facts = read_model(write_voice(tmp_path))
    assert (facts.format, facts.path) == (ModelFormat.PIPER, tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.gguf", "name the file"),
        ("pytorch_model.bin", "Python pickles"),
        ("v1-5.ckpt", "Python pickles"),
        ("README.md", "no model's folder"),
        ("setup.py", "no model's folder"),
    ],
)
def test_what_is_no_model(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(InvalidRequest, match=words):
        read_model(tmp_path)


def test_code_beside_good_files_is_refused(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    (tmp_path / "modeling_mine.py").write_text("")
    with pytest.raises(InvalidRequest, match="never run"):
        read_model(tmp_path)


def test_a_pipeline_comes_before_what_else_lies_there(tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    write_json(tmp_path / "config.json", {})
    assert read_model(tmp_path).format is ModelFormat.DIFFUSERS
