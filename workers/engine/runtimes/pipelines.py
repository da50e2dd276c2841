"""Pipelines of diffusers: loaded whole from a folder, from safetensors alone, without the network and without code of
the model's own.

On a card the weights are bfloat16 where it can do that, else float16. On the CPU they stay float32 if they were stored
so, else bfloat16: no load takes more memory than the folder takes on the disk.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import diffusers
import torch
from diffusers.utils import logging as diffusers_logging
from pydantic import ValidationError
from safetensors import safe_open
from transformers.utils import logging as transformers_logging

from infra.errors import EngineFailed, InvalidRequest, LoadFailed
from infra.types import Frozen, Json
from workers.engine.runtimes.protocol import Ask
from workers.wire import EngineLaunch

INDEX: Final = "model_index.json"
_LIBRARIES: Final = ("diffusers", "transformers")
"""Where a component's class may come from, besides diffusers' own pipelines."""
_HALF_VARIANT: Final = "fp16"
_DENOISERS: Final = ("transformer", "unet")
"""The components with most of the weights."""
_MOST_REASON: Final = 300

Shape = TypeVar("Shape", bound=Frozen)
Told = Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]
"""diffusers' `callback_on_step_end`."""


def load_pipeline(kind: Any, launch: EngineLaunch, **more: Any) -> Any:
    """The pipeline in the launch's folder, on its card. `kind` is a pipeline's class or an AutoPipeline of diffusers,
    `more` further arguments of its `from_pretrained`, such as components that are not to be loaded.

    Raises:
        LoadFailed: it cannot be loaded; with a sentence.
    """
    folder = launch.entry.path
    assert folder is not None
    check_index(folder)
    torch.set_num_threads(launch.threads)
    diffusers_logging.set_verbosity_error()
    diffusers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    device = device_of(launch)
    more = {"variant": _HALF_VARIANT} | more if _has_only_halves(folder) else more
    try:
        pipe = kind.from_pretrained(
            folder, dtype=dtype_of(folder, device), use_safetensors=True, local_files_only=True, **more
        )
        pipe.set_progress_bar_config(disable=True)
        return _placed(pipe, launch, device)
    except Exception as error:
        reason = " ".join(str(error).split())[:_MOST_REASON]
        raise LoadFailed(f"diffusers cannot load {folder}: {type(error).__name__}: {reason}") from error


def check_index(folder: Path) -> dict[str, Json]:
    """The pipeline's index, in which no component comes from anywhere but diffusers and transformers.

    Raises:
        LoadFailed: there is no index, or one that names code which is not theirs.
    """
    try:
        index = json.loads((folder / INDEX).read_bytes())
    except (OSError, ValueError) as error:
        raise LoadFailed(f"{folder} is no pipeline's folder: its {INDEX} cannot be read ({error})") from error
    if not isinstance(index, dict) or not isinstance(index.get("_class_name"), str):
        raise LoadFailed(f"{folder / INDEX} does not name a pipeline of diffusers (_class_name)")
    for name, component in index.items():
        if not name.startswith("_") and isinstance(component, list) and not _is_known(component):
            raise LoadFailed(f"{folder / INDEX} wants {name!r} from code that is neither diffusers' nor transformers'")
    return index


def _is_known(component: list[Json]) -> bool:
    """Whether a component of an index is a configured value, nothing, or a class of the two libraries."""
    if len(component) != 2 or component == [None, None]:
        return all(not isinstance(each, str) for each in component)
    library, name = component
    if not isinstance(library, str) or not isinstance(name, str):
        return library is None or not isinstance(library, str)
    return library in _LIBRARIES or hasattr(diffusers.pipelines, library)


def device_of(launch: EngineLaunch) -> torch.device:
    """Where a launch's tensors live.

    Raises:
        LoadFailed: this install's torch cannot use the card.
    """
    if launch.backend == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise LoadFailed(
            f"this install's torch {torch.__version__} cannot use {launch.backend} cards: install the build of torch "
            'that is made for yours, or pin the model to the CPU (engine = "cpu")'
        )
    return torch.device("cuda")  # torch calls ROCm's cards so, too


def dtype_of(folder: Path, device: torch.device) -> torch.dtype:
    """The type of the weights in memory."""
    if device.type == "cpu":
        return torch.float32 if stored_dtype(folder) in ("F32", "F64") else torch.bfloat16
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def stored_dtype(folder: Path) -> str:
    """What most of the weights are stored as, in safetensors' words, such as F32 or BF16."""
    files = [file for name in _DENOISERS for file in (folder / name).glob("*.safetensors")]
    if not files:
        return "F32"
    with safe_open(max(files, key=lambda file: file.stat().st_size), framework="pt") as weights:
        name = next(iter(weights.keys()), None)
        return "F32" if name is None else str(weights.get_slice(name).get_dtype())


def on_step(ask: Ask, phase: str = "denoising") -> Told:
    """What a pipeline calls after each step: tells how far it is, and ends the run once its client has left.

    The callback raises Abandoned.
    """

    def told(pipe: Any, step: int, _timestep: Any, _tensors: dict[str, Any]) -> dict[str, Any]:
        ask.progress.tell(phase, step + 1, max(step + 1, int(pipe.num_timesteps)))
        ask.check()
        return {}

    return told


def described(ask: Ask, field: str, shape: type[Shape]) -> Shape:
    """What is asked for: the form's field with it in JSON.

    Raises:
        InvalidRequest: it is none.
    """
    given = ask.body.get(field)
    try:
        return shape.model_validate_json(str(given[-1]) if isinstance(given, list) and given else "")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"{place or field}: {first['msg']}", param=place or field) from error


@contextmanager
def card_memory(what: str, instead: str) -> Iterator[None]:
    """Around the work on one image or video (`what`): a card that runs full is emptied, and `instead` is what to ask
    for.

    Raises:
        EngineFailed: the card's memory does not suffice.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        raise EngineFailed(
            f"the card's memory does not suffice for this {what}: ask for {instead}, or give the model `offload`"
        ) from error


def _placed(pipe: Any, launch: EngineLaunch, device: torch.device) -> Any:
    """The pipeline on its device; with `offload` its parts wait in RAM and come to the card when they are used."""
    if device.type == "cpu" or launch.entry.offload == "none":
        return pipe.to(device)
    if launch.entry.offload == "sequential":
        pipe.enable_sequential_cpu_offload(device=device)
    else:
        pipe.enable_model_cpu_offload(device=device)
    return pipe


def _has_only_halves(folder: Path) -> bool:
    """Whether the large component has no weights but those of the variant fp16."""
    names = [file.name for part in _DENOISERS for file in (folder / part).glob("*.safetensors")]
    return bool(names) and all(f".{_HALF_VARIANT}" in name for name in names)
