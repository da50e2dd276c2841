"""A folder of CTranslate2 that holds whisper: `model.bin`, which is no pickle, with its tokenizer and vocabulary."""

import struct
from typing import Final

from infra.errors import InvalidRequest
from workers.folders.facts import FolderFacts
from workers.folders.files import Folder
from workers.gguf_header import open_regular
from workers.types import Capability, ModelFormat

WEIGHTS: Final = "model.bin"
VOCABULARIES: Final = ("vocabulary.json", "vocabulary.txt")
CONTEXT_TOKENS: Final = 448
"""Of every whisper model: its decoder's positions."""
_SPEC: Final = b"WhisperSpec"
_VERSIONS: Final = range(2, 100)
_HEAD: Final = struct.Struct("<IH")


def read_whisper(folder: Folder) -> FolderFacts:
    """What the folder is. CTranslate2's file begins with its version and the name of what it holds, each text as its
    length in 2 bytes and its bytes (ctranslate2.specs.model_spec, `_serialize`).

    Raises:
        InvalidRequest: a file is missing, or the weights are of something else.
    """
    path = folder.path / WEIGHTS
    with open_regular(path) as (file, size_bytes):
        head = file.read(_HEAD.size + 64)
    if len(head) < _HEAD.size or _HEAD.unpack_from(head)[0] not in _VERSIONS:
        raise InvalidRequest(f"{path} is no file of CTranslate2: a pickle of that name is never opened")
    length = _HEAD.unpack_from(head)[1]
    spec = head[_HEAD.size : _HEAD.size + min(length, 64)].rstrip(b"\0")
    if spec != _SPEC:
        raise InvalidRequest(
            f"{path} holds {spec.decode(errors='replace')[:40]!r} of CTranslate2: of its models whisper is served"
        )
    folder.require("config.json", "tokenizer.json")
    folder.json("config.json")
    if not folder.has(*VOCABULARIES):
        raise InvalidRequest(f"{folder.path} has no vocabulary.json or vocabulary.txt: get the model's other files too")
    return FolderFacts(
        path=folder.path,
        format=ModelFormat.WHISPER,
        capabilities=(Capability.STT,),
        architecture="whisper",
        weights_bytes=size_bytes,
        context_tokens=CONTEXT_TOKENS,
    )
