"""Whisper's folder of CTranslate2."""

from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from tests.model_folders import write_whisper
from workers.folders.files import Folder
from workers.folders.whisper import CONTEXT_TOKENS, read_whisper
from workers.types import Capability, ModelFormat


def test_what_it_is(tmp_path: Path) -> None:
    facts = read_whisper(Folder(write_whisper(tmp_path)))
    assert (facts.format, facts.capabilities) == (ModelFormat.WHISPER, (Capability.STT,))
    assert (facts.architecture, facts.context_tokens) == ("whisper", CONTEXT_TOKENS)
    assert facts.weights_bytes == (tmp_path / "model.bin").stat().st_size


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "vocabulary.txt"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_whisper(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InvalidRequest, match=name):
        read_whisper(Folder(tmp_path))


def test_another_model_of_the_library_and_a_pickle(tmp_path: Path) -> None:
    write_whisper(tmp_path, b"TransformerSpec")
    with pytest.raises(InvalidRequest, match=r"'TransformerSpec'.*whisper is served"):
        read_whisper(Folder(tmp_path))
    for content in (b"PK\x03\x04" + bytes(60), b"\x80\x04\x95" + bytes(60), b"", b"\x06\0\0\0"):
        (tmp_path / "model.bin").write_bytes(content)
        with pytest.raises(InvalidRequest, match="no file of CTranslate2"):
            read_whisper(Folder(tmp_path))
