"""Which files of a hub's repository make a model's folder: what is loaded, and nothing twice.

Left out: pickles, other frameworks' weights, variants that were not asked for, pictures, programs.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import orjson

from infra.errors import InvalidRequest
from infra.types import HubId, Json
from workers.folders import encoders, pipelines, piper, whisper
from workers.folders.encoders import module_folders
from workers.folders.files import ADAPTER, PICKLES, Folder
from workers.folders.pipelines import parts_of
from workers.folders.tensors import WeightsName, weights_name

_SMALL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\.(json|txt|model|jinja)")
"""Configuration, tokenizers, templates."""
_OTHER_WEIGHTS: Final = (*PICKLES, ".msgpack", ".h5", ".onnx", ".safetensors")
_MOST_NAMED: Final = 20


def index_of(paths: Collection[str]) -> str | None:
    """The file that says which folders of a repository belong to the model; None where there are none."""
    return next((name for name in (pipelines.INDEX, encoders.MODULES) if name in paths), None)


def choose_folder(hub_id: HubId, paths: Collection[str], variant: str | None, index: bytes | None) -> dict[str, str]:
    """The files of a repository that make the model: their names in the folder, with their paths in the repository.

    `variant` is what stands after the id's colon: of weights such as `fp16`, else the plain ones are taken; of several
    voices the one that is meant. `index` is the content of the file that `index_of` names. Weights of a variant get the
    plain name, which every library looks for.

    Raises:
        InvalidRequest: nothing there is served, a part has only pickles, or there are several to choose from.
    """
    chosen = _chosen(hub_id, paths, variant, index)
    taken = {parts.variant for path in chosen.values() if (parts := weights_name(PurePosixPath(path).name))}
    if variant is not None and variant not in taken and not _has_voice(chosen, variant):
        raise InvalidRequest(
            f"{hub_id}: there is no {variant} of it; leave out what stands after the colon", param="model"
        )
    return chosen


def _chosen(hub_id: HubId, paths: Collection[str], variant: str | None, index: bytes | None) -> dict[str, str]:
    if pipelines.INDEX in paths:
        chosen = {pipelines.INDEX: pipelines.INDEX}
        for name in parts_of(Folder(Path(hub_id)), _object(hub_id, index)):
            chosen |= _network(hub_id, paths, name, variant)
        return chosen
    if whisper.WEIGHTS in paths and not set(whisper.VOCABULARIES).isdisjoint(paths):
        return {path: path for path in paths if path == whisper.WEIGHTS or _is_small(path, "")}
    if any(path.endswith(piper.SETTINGS) for path in paths):
        return _voice(hub_id, paths, variant)
    if encoders.CONFIG in paths or encoders.MODULES in paths:
        chosen = _network(hub_id, paths, "", variant)
        for name in module_folders(_parsed(hub_id, index) if index is not None else []):
            chosen |= _network(hub_id, paths, Folder(Path(hub_id)).plain(name), None)
        return chosen
    raise InvalidRequest(
        f"{hub_id} has neither a GGUF file nor a model's folder that is served (safetensors of diffusers or of an "
        "encoder, whisper of CTranslate2, a voice of piper): choose another repository",
        param="model",
    )


def _has_voice(chosen: Mapping[str, str], name: str) -> bool:
    return f"{name}{piper.SETTINGS}" in chosen


def _network(hub_id: HubId, paths: Collection[str], folder: str, variant: str | None) -> dict[str, str]:
    """The files of one folder of the repository, itself if the name is empty."""
    before = f"{folder}/" if folder else ""
    chosen = {path: path for path in paths if _is_small(path, before)}
    named = {path: parts for path in _directly(paths, before) if (parts := weights_name(path[len(before) :]))}
    variants = {parts.variant for parts in named.values()}
    if not named:
        others = [path for path in _directly(paths, before) if path.lower().endswith(_OTHER_WEIGHTS)]
        if others:
            raise InvalidRequest(
                f"{hub_id} has no safetensors where it has {others[0]}: other weights are not loaded, and pickles can "
                "run code. Choose another repository of the model",
                param="model",
            )
        return chosen
    wanted = variant if variant in variants else None
    if wanted not in variants:
        if len(variants) > 1:
            there = ", ".join(sorted(str(each) for each in variants))
            raise InvalidRequest(f"{hub_id} has weights in the variants {there}: name one, as OWNER/REPO:VARIANT")
        wanted = variants.pop()
    return chosen | _plainly_named({path: parts for path, parts in named.items() if parts.variant == wanted})


def _plainly_named(weights: Mapping[str, WeightsName]) -> dict[str, str]:
    """One variant's files. A single file and a set's index lose the variant in their names; shards are called what the
    index says. Where there is a single file it is what is loaded, so a set beside it is left out."""
    single = {path: parts for path, parts in weights.items() if not parts.shard and not parts.is_index}
    return {
        path if parts.shard or parts.variant is None else path.replace(f".{parts.variant}", ""): path
        for path, parts in (single or weights).items()
    }


def _voice(hub_id: HubId, paths: Collection[str], wanted: str | None) -> dict[str, str]:
    """A voice's two files, which lie side by side anywhere in the repository."""
    voices: dict[str, str] = {}
    for path in sorted(paths):
        network = path.removesuffix(".json")
        if path.endswith(piper.SETTINGS) and network in paths and ".." not in path:
            voices[PurePosixPath(network).name.removesuffix(".onnx")] = network
    names = [wanted] if wanted is not None and wanted in voices else list(voices)
    if len(names) != 1:
        there = ", ".join(list(voices)[:_MOST_NAMED])
        more = f" and {len(voices) - _MOST_NAMED} more" if len(voices) > _MOST_NAMED else ""
        raise InvalidRequest(
            f"{hub_id}: name one voice as OWNER/REPO:VOICE. There is: {there or 'none that is whole'}{more}",
            param="model",
        )
    network = voices[names[0]]
    return {PurePosixPath(path).name: path for path in (network, f"{network}.json")}


def _directly(paths: Collection[str], before: str) -> list[str]:
    return [path for path in paths if path.startswith(before) and "/" not in path[len(before) :]]


def _is_small(path: str, before: str) -> bool:
    """Whether it is a small file that lies directly there. Indices of weights come with the weights."""
    name = path[len(before) :]
    named = _SMALL.fullmatch(name) is not None and ".index." not in name and name != ADAPTER
    return path.startswith(before) and named


def _object(hub_id: HubId, index: bytes | None) -> dict[str, Json]:
    found = _parsed(hub_id, index)
    if not isinstance(found, dict):
        raise InvalidRequest(f"{hub_id} has an index that is no JSON object: choose another repository", param="model")
    return found


def _parsed(hub_id: HubId, index: bytes | None) -> Json:
    try:
        found: Json = orjson.loads(index or b"")
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(
            f"{hub_id} has an index that is no JSON: choose another repository", param="model"
        ) from error
    return found
