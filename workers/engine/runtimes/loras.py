"""LoRA adapters of a diffusers pipeline: loaded once by their content, switched on and off with each request.

A pipeline without an adapter in use gives, bit for bit, what it gave before it ever had one: nothing is fused into its
weights, and an adapter that is switched off takes no part in the arithmetic.
"""

import functools
import hashlib
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from diffusers.loaders.lora_base import LoraBaseMixin
from diffusers.utils.peft_utils import delete_adapter_layers, set_adapter_layers
from peft import inject_adapter_in_model, set_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel

from infra.errors import InvalidRequest
from infra.types import Json
from workers.lora_header import MAX_RANK

MOST_LOADED: Final = 8
"""Adapters that stay loaded, those in use included."""
MOST_IDLE_BYTES: Final = 1 << 30
"""What the files of adapters that are loaded and not in use may have together."""
_REASON_CHARS: Final = 300


class _Wanted(NamedTuple):
    """One adapter of a request: `id` is what the libraries call it, `name` what its sender does."""

    id: str
    path: Path
    weight: float
    name: str


class PipelineLoras:
    """The adapters of one pipeline. One request at a time: what is switched on belongs to the whole pipeline."""

    def __init__(self, pipe: Any) -> None:
        """`pipe`: a diffusers pipeline that can load adapters (`load_lora_weights`), or one that cannot."""
        self._pipe = pipe
        self._loaded: dict[str, int] = {}
        """The bytes of each adapter's file, the one used longest ago first."""
        if isinstance(pipe, LoraBaseMixin):
            pipe.lora_state_dict = functools.partial(_read, pipe.lora_state_dict)
        for part in self._parts():
            if isinstance(part, PreTrainedModel):
                # transformers 5.24 takes none without peft 0.22, which is not there; what it did before does as well.
                part.load_adapter = functools.partial(_inject, part)

    def apply(self, adapters: Sequence[Mapping[str, Json]]) -> None:
        """Switch on exactly these, each `{path, weight, name}` (`tasks.loras.located`), for what is drawn from now on.

        No adapters: all are switched off. Call it before each run of the pipeline, not only where a request has some.

        Raises:
            InvalidRequest: one does not fit the model; the message says which and why, and none is switched on.
        """
        wanted = [_wanted(adapter) for adapter in adapters]
        self._switch(on=False)
        if not wanted:
            return
        if not isinstance(self._pipe, LoraBaseMixin):
            raise InvalidRequest("this model takes no LoRA adapters: leave out loras", param="loras")
        self._make_room({each.id for each in wanted})
        for each in wanted:
            size_bytes = self._loaded.pop(each.id, None)
            self._loaded[each.id] = self._load(each) if size_bytes is None else size_bytes
        self._switch(on=True)
        self._pipe.set_adapters([each.id for each in wanted], [each.weight for each in wanted])

    def _load(self, wanted: _Wanted) -> int:
        """Load one, and return its file's bytes; what of it got in before it failed is taken out again."""
        try:
            size_bytes = wanted.path.stat().st_size
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Already found a `peft_config`")  # more than one is the point
                # The library tells safetensors, which are not code, from pickles by a name alone. A file needs none.
                self._pipe.load_lora_weights(
                    wanted.path,
                    weight_name=f"{wanted.id}.safetensors",
                    adapter_name=wanted.id,
                    use_safetensors=True,
                    local_files_only=True,
                )
            self._require_some(wanted.id)
        except Exception as error:
            self._unload(wanted.id)
            self._switch(on=False)  # a layer that is new is on
            if isinstance(error, torch.OutOfMemoryError | MemoryError):
                raise
            raise InvalidRequest(
                f"the LoRA {wanted.name!r} does not fit this model: {_reason(error)}",
                param="loras",
                code="lora_mismatch",
            ) from error
        return size_bytes

    def _make_room(self, keep: set[str]) -> None:
        """Unload what was used longest ago, until the others have room."""
        idle = [each for each in self._loaded if each not in keep]
        idle_bytes = sum(self._loaded[each] for each in idle)
        while idle and (len(keep) + len(idle) > MOST_LOADED or idle_bytes > MOST_IDLE_BYTES):
            oldest = idle.pop(0)
            idle_bytes -= self._loaded.pop(oldest)
            self._unload(oldest)

    def _unload(self, adapter: str) -> None:
        for part in self._parts():
            for module in part.modules():
                if isinstance(module, BaseTunerLayer):
                    # One that is active would make the library choose another in its place.
                    module.set_adapter([each for each in module.active_adapters if each != adapter])
            delete_adapter_layers(part, adapter)
            if hasattr(part, "peft_config"):
                part.peft_config.pop(adapter, None)

    def _switch(self, *, on: bool) -> None:
        for part in self._parts():
            set_adapter_layers(part, enabled=on)

    def _require_some(self, adapter: str) -> None:
        """Raises InvalidRequest where the adapter changes no layer, or a layer's numbers did not come with it: the
        library only warns of that."""
        modules = (module for part in self._parts() for module in part.modules())
        layers = [each for each in modules if isinstance(each, BaseTunerLayer) and adapter in each.lora_A]
        if not layers:
            raise InvalidRequest("it changes no layer that this model has")
        if any(_is_hollow(part) for layer in layers for part in layer.modules()):
            raise InvalidRequest("it lacks matrices that it tells of")

    def _parts(self) -> list[Any]:
        """The networks of the pipeline that may have adapters."""
        names = getattr(self._pipe, "_lora_loadable_modules", ())
        parts = (getattr(self._pipe, name, None) for name in names)
        return [part for part in parts if isinstance(part, torch.nn.Module)]


def _is_hollow(module: torch.nn.Module) -> bool:
    """Whether a module's own numbers are not there, and nobody (offloading) would bring them."""
    return any(each.is_meta for each in module.parameters(recurse=False)) and not hasattr(module, "_hf_hook")


def _inject(
    network: Any, *, adapter_name: str, adapter_state_dict: Mapping[str, Any], peft_config: Any, **_more: Any
) -> None:
    """Give a text encoder an adapter. diffusers calls this as transformers' `load_adapter`.

    No memory is taken for what is not in the file, whatever sizes it tells of.
    """
    inject_adapter_in_model(
        peft_config, network, adapter_name, low_cpu_mem_usage=True, state_dict=dict(adapter_state_dict)
    )
    set_peft_model_state_dict(network, adapter_state_dict, adapter_name, low_cpu_mem_usage=True)
    network._hf_peft_config_loaded = True


def _read(library: Callable[..., tuple[Any, ...]], *given: Any, **options: Any) -> tuple[Any, ...]:
    """What the library reads of an adapter's file, with no more of the adapter's words than its form. Others would have
    the model's own weights changed, modules imported, or patterns matched for ever."""
    found = library(*given, **options)
    if not options.get("return_lora_metadata") or found[-1] is None:
        return found
    if not isinstance(found[-1], dict):
        raise InvalidRequest("what it tells of itself is no JSON object")
    told = {name: value for name, value in found[-1].items() if name.rpartition(".")[2] in _FORM}
    wrong = next((name for name, value in told.items() if not _FORM[name.rpartition(".")[2]](value)), None)
    if wrong is not None:
        raise InvalidRequest(f"what it tells of itself as {wrong[:100]!r} is not usable")
    return (*found[:-1], told)


def _is_rank(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MAX_RANK


def _is_alpha(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _are_layers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and _LAYER.fullmatch(name) for name in value)


def _by_layer(value: Any, good: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and _are_layers(list(value)) and all(map(good, value.values()))


_LAYER: Final = re.compile(r"\^?[A-Za-z0-9_.-]{1,500}", re.ASCII)
"""A layer's name. The library takes it for a pattern."""
_FORM: Final[dict[str, Callable[[Any], bool]]] = {
    "r": _is_rank,
    "lora_alpha": _is_alpha,
    "rank_pattern": functools.partial(_by_layer, good=_is_rank),
    "alpha_pattern": functools.partial(_by_layer, good=_is_alpha),
    "target_modules": _are_layers,
    "use_rslora": _is_switch,
    "use_dora": _is_switch,
    "lora_bias": _is_switch,
}
"""What an adapter may tell of its form, and what is a good value of each."""


def _wanted(adapter: Mapping[str, Json]) -> _Wanted:
    path, weight = adapter["path"], adapter["weight"]
    if not isinstance(path, str) or not isinstance(weight, int | float):
        raise InvalidRequest("a LoRA has a path and a weight", param="loras")
    name = hashlib.sha256(path.encode()).hexdigest()[:32]
    return _Wanted(f"lora_{name}", Path(path), float(weight), str(adapter.get("name") or Path(path).name))


def _reason(error: Exception) -> str:
    """The library's own words, on one line, without what follows the first of several complaints."""
    words = error.message if isinstance(error, InvalidRequest) else f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):  # whose words have the file's place
        words = error.strerror or type(error).__name__
    return " ".join(words.split())[:_REASON_CHARS]
