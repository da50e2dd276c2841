"""LoRA adapters of a diffusers pipeline: loaded once by their content, switched on and off with each request.

A pipeline without an adapter in use gives, bit for bit, what it gave before it ever had one: nothing is fused into its
weights, and an adapter that is switched off takes no part in the arithmetic.
"""

import functools
import hashlib
import tempfile
import warnings
from collections.abc import Mapping, Sequence
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
            if size_bytes is None:
                self._load(each)
                size_bytes = each.path.stat().st_size
            self._loaded[each.id] = size_bytes
        self._switch(on=True)
        self._pipe.set_adapters([each.id for each in wanted], [each.weight for each in wanted])

    def _load(self, wanted: _Wanted) -> None:
        """Load one; what of it got in before it failed is taken out again."""
        try:
            with tempfile.TemporaryDirectory(prefix="lora-") as folder, warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Already found a `peft_config`")  # more than one is the point
                # The library tells safetensors, which are not code, from pickles by their name alone.
                name = f"{wanted.id}.safetensors"
                (Path(folder) / name).symlink_to(wanted.path)
                self._pipe.load_lora_weights(
                    folder, weight_name=name, adapter_name=wanted.id, use_safetensors=True, local_files_only=True
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
        """Raises InvalidRequest where the adapter changes no layer: the library only warns of that."""
        modules = (module for part in self._parts() for module in part.modules())
        if not any(isinstance(module, BaseTunerLayer) and adapter in module.lora_A for module in modules):
            raise InvalidRequest("it changes no layer that this model has")

    def _parts(self) -> list[Any]:
        """The networks of the pipeline that may have adapters."""
        names = getattr(self._pipe, "_lora_loadable_modules", ())
        parts = (getattr(self._pipe, name, None) for name in names)
        return [part for part in parts if isinstance(part, torch.nn.Module)]


def _inject(
    network: Any, *, adapter_name: str, adapter_state_dict: Mapping[str, Any], peft_config: Any, **_more: Any
) -> None:
    """Give a text encoder an adapter. diffusers calls this as transformers' `load_adapter`."""
    inject_adapter_in_model(peft_config, network, adapter_name)
    set_peft_model_state_dict(network, adapter_state_dict, adapter_name)
    network._hf_peft_config_loaded = True


def _wanted(adapter: Mapping[str, Json]) -> _Wanted:
    path, weight = adapter["path"], adapter["weight"]
    if not isinstance(path, str) or not isinstance(weight, int | float):
        raise InvalidRequest("a LoRA has a path and a weight", param="loras")
    name = hashlib.sha256(path.encode()).hexdigest()[:32]
    return _Wanted(f"lora_{name}", Path(path), float(weight), str(adapter.get("name") or Path(path).name))


def _reason(error: Exception) -> str:
    """The library's own words, on one line, without what follows the first of several complaints."""
    words = error.message if isinstance(error, InvalidRequest) else f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:_REASON_CHARS]
