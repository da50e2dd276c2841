"""A voice of piper."""

from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from infra.types import Json
from tests.model_folders import write_json, write_voice
from workers.folders.files import Folder
from workers.folders.piper import read_piper
from workers.types import Capability, ModelFormat


def test_what_it_is(tmp_path: Path) -> None:
    network = write_voice(tmp_path)
    facts = read_piper(Folder(tmp_path))
    assert (facts.format, facts.capabilities, facts.path) == (ModelFormat.PIPER, (Capability.TTS,), tmp_path)
    assert facts.weights_bytes == network.stat().st_size


def test_one_voice_a_folder(tmp_path: Path) -> None:
    write_voice(tmp_path, "ann")
    write_voice(tmp_path, "ben")
    with pytest.raises(InvalidRequest, match=r"holds 2 voices \(ann, ben\)"):
        read_piper(Folder(tmp_path))


@pytest.mark.parametrize(
    "settings", [{}, {"audio": {"sample_rate": 16000}}, {"audio": {"sample_rate": "16000"}, "phoneme_id_map": {}}]
)
def test_settings_of_something_else(tmp_path: Path, settings: dict[str, Json]) -> None:
    network = write_voice(tmp_path)
    write_json(Path(f"{network}.json"), settings)
    with pytest.raises(InvalidRequest, match="no voice of piper's"):
        read_piper(Folder(tmp_path))


def test_half_a_voice_and_no_network(tmp_path: Path) -> None:
    network = write_voice(tmp_path)
    network.write_bytes(b"<html>")
    with pytest.raises(InvalidRequest, match="no ONNX file"):
        read_piper(Folder(tmp_path))
    network.unlink()
    with pytest.raises(InvalidRequest, match=rf"has no {network.name}"):
        read_piper(Folder(tmp_path))
