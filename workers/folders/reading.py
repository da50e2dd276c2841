"""What a local model is, be it a file or a folder: the one door for whoever adds one."""

from collections.abc import Callable
from pathlib import Path

from infra.errors import InvalidRequest
from workers.folders import encoders, pipelines, whisper
from workers.folders.encoders import read_encoder
from workers.folders.facts import FolderFacts
from workers.folders.files import PICKLES, Folder, require_no_code
from workers.folders.pipelines import read_pipeline
from workers.folders.piper import SETTINGS, read_piper, voices_in
from workers.folders.whisper import read_whisper
from workers.weights import WeightsFacts, read_weights


def read_model(path: Path) -> WeightsFacts | FolderFacts:
    """Read what a model is from its files. Of a voice of piper either the folder or the network may be named.

    Raises:
        InvalidRequest: it is of no format that is served, not whole, damaged, holds pickles, or wants code to be run.
    """
    if path.is_dir():
        return read_folder(path)
    if path.with_name(f"{path.stem}{SETTINGS}").is_file():
        return read_folder(path.parent)
    return read_weights(path)


def read_folder(path: Path) -> FolderFacts:
    """The same for a folder.

    Raises:
        InvalidRequest: as `read_model`.
    """
    folder = Folder(path)
    read = _reader(folder)
    if read is None:
        raise InvalidRequest(_what_it_is(folder))
    require_no_code(path)
    return read(folder)


def _reader(folder: Folder) -> Callable[[Folder], FolderFacts] | None:
    """Who reads a folder with such files."""
    if folder.has(pipelines.INDEX):
        return read_pipeline
    if folder.has(whisper.WEIGHTS) and folder.has(*whisper.VOCABULARIES):
        return read_whisper
    if voices_in(folder):
        return read_piper
    return read_encoder if folder.has(encoders.CONFIG, encoders.MODULES) else None


def _what_it_is(folder: Folder) -> str:
    names = folder.names()
    if any(name.endswith(".gguf") for name in names):
        return f"{folder.path} is a folder of GGUF files: name the file, of a split model the first one"
    pickles = [name for name in names if name.lower().endswith(PICKLES)]
    if pickles:
        return (
            f"{folder.path} holds Python pickles ({pickles[0]}): opening one can run code, so it never is. Get the "
            "model as safetensors"
        )
    return (
        f"{folder.path} is no model's folder: served are pipelines of diffusers (model_index.json), encoders and "
        "rerankers in safetensors (config.json), whisper of CTranslate2 (model.bin) and voices of piper (.onnx.json)"
    )
