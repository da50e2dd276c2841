"""A pipeline of diffusers: `model_index.json` names its class and its parts, each part a folder of its own."""

import re
from typing import Final

from infra.errors import InvalidRequest
from infra.types import Json
from workers.folders.facts import FolderFacts
from workers.folders.files import Folder
from workers.folders.tensors import loaded_files, size_of
from workers.types import Capability, ModelFormat

INDEX: Final = "model_index.json"
_IMAGES: Final = re.compile(
    r"(StableDiffusion|StableDiffusionXL|StableDiffusion3|LatentConsistencyModel|Flux|FluxKontext|Flux2|Flux2Klein|ZImage"
    r"|QwenImage|PixArtAlpha|PixArtSigma|Sana|HunyuanDiT|AuraFlow|Chroma|CogView4|Lumina2|Kolors)(Img2Img|Inpaint)?Pipeline"
)
"""Classes that diffusers' AutoPipelineForText2Image finds, and that need no second model."""
_VIDEO: Final = re.compile(r"Wan(ImageToVideo)?Pipeline")
_LIBRARIES: Final = ("diffusers", "transformers", "stable_diffusion")
"""Where a part's class may come from; the last one is diffusers' own safety checker."""
_WITHOUT_WEIGHTS: Final = re.compile(
    r"\w*(Tokenizer|TokenizerFast|TokenizersBackend|Scheduler|Processor|ProcessorPil|Extractor)"
)
_TOKENIZERS: Final = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)


def read_pipeline(folder: Folder) -> FolderFacts:
    """What the folder is.

    Raises:
        InvalidRequest: its class is not served, a part is missing, holds pickles or comes from elsewhere.
    """
    index = folder.json(INDEX)
    name = index.get("_class_name")
    capability = _capability(folder, name)
    parts = parts_of(folder, index)
    if not parts:
        raise InvalidRequest(f"{folder.path / INDEX} names no parts: get the model again")
    return FolderFacts(
        path=folder.path,
        format=ModelFormat.DIFFUSERS,
        capabilities=(capability,),
        architecture=str(name),
        weights_bytes=sum(_part_bytes(folder.folder(part), kind) for part, kind in parts.items()),
    )


def parts_of(folder: Folder, index: dict[str, Json]) -> dict[str, str]:
    """The parts that a pipeline's index asks for: their folders' names, with the class of each.

    Raises:
        InvalidRequest: a part has no plain name, or its class is neither diffusers' nor transformers'.
    """
    parts: dict[str, str] = {}
    for name, value in index.items():
        if name.startswith("_") or not isinstance(value, list) or value == [None, None]:
            continue
        library, kind = value if len(value) == 2 else (None, None)
        if library is None and not isinstance(kind, str):
            continue  # a value that is configured, not a part
        if library not in _LIBRARIES or not isinstance(kind, str):
            raise InvalidRequest(
                f"{folder.path / INDEX} wants {name[:60]!r} from {str(library)[:60]!r}: code that is neither "
                "diffusers' nor transformers' is never run"
            )
        parts[folder.plain(name)] = kind
    return parts


def has_weights(kind: str) -> bool:
    """Whether a part of that class has weights."""
    return _WITHOUT_WEIGHTS.fullmatch(kind) is None


def _capability(folder: Folder, name: Json) -> Capability:
    if isinstance(name, str) and _IMAGES.fullmatch(name):
        return Capability.IMAGES
    if isinstance(name, str) and _VIDEO.fullmatch(name):
        return Capability.VIDEO
    if isinstance(name, list):
        raise InvalidRequest(f"{folder.path} is a pipeline with code of its own ({name}), which is never run")
    raise InvalidRequest(
        f"{folder.path} is a {str(name)[:60]}, which is not served: images come from the pipelines of Stable "
        "Diffusion, SDXL, Flux, Z-Image and their like, video from those of Wan"
    )


def _part_bytes(part: Folder, kind: str) -> int:
    """Bytes that are loaded of one part."""
    if not part.path.is_dir():
        raise InvalidRequest(f"{part.path} is missing: get the model again, with all its folders")
    if has_weights(kind):
        part.require("config.json")
        return size_of(loaded_files(part))
    if "Scheduler" in kind:
        part.require("scheduler_config.json")
    elif "Tokenizer" in kind and not part.has(*_TOKENIZERS):
        raise InvalidRequest(f"{part.path} has no vocabulary ({', '.join(_TOKENIZERS[:3])} …): get it too")
    return 0
