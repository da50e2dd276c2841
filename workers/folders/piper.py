"""A voice of piper: a network in `NAME.onnx`, and beside it `NAME.onnx.json`, which says how to speak with it."""

from pathlib import Path
from typing import Final

from infra.errors import InvalidRequest
from workers.folders.facts import FolderFacts
from workers.folders.files import Folder
from workers.gguf_header import open_regular
from workers.types import Capability, ModelFormat

SETTINGS: Final = ".onnx.json"
_FIRST_BYTE: Final = b"\x08"
"""Of every ONNX file: the field `ir_version` of its protobuf message."""


def voices_in(folder: Folder) -> tuple[str, ...]:
    """The names of its voices: their networks' files without `.onnx`."""
    return tuple(name.removesuffix(SETTINGS) for name in folder.names() if name.endswith(SETTINGS))


def read_piper(folder: Folder) -> FolderFacts:
    """What the folder is.

    Raises:
        InvalidRequest: it holds several voices, half of one, or something else.
    """
    voices = voices_in(folder)
    if len(voices) != 1:
        raise InvalidRequest(
            f"{folder.path} holds {len(voices)} voices ({', '.join(voices[:5])}): put the two files of one voice "
            "into a folder of its own, and name that"
        )
    name = voices[0]
    folder.require(f"{name}.onnx")
    settings = folder.json(f"{name}{SETTINGS}")
    audio = settings.get("audio")
    rate = audio.get("sample_rate") if isinstance(audio, dict) else None
    if type(rate) is not int or not 8_000 <= rate <= 192_000 or not isinstance(settings.get("phoneme_id_map"), dict):
        raise InvalidRequest(
            f"{folder.path / name}{SETTINGS} is no voice of piper's: it has no sample_rate or phonemes"
        )
    return FolderFacts(
        path=folder.path,
        format=ModelFormat.PIPER,
        capabilities=(Capability.TTS,),
        architecture="piper",
        weights_bytes=_network_bytes(folder.path / f"{name}.onnx"),
    )


def _network_bytes(path: Path) -> int:
    with open_regular(path) as (file, size_bytes):
        if file.read(1) != _FIRST_BYTE:
            raise InvalidRequest(f"{path} is no ONNX file: get it again")
    return size_bytes
