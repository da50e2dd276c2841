"""Tiny LoRA adapters: bytes that only look like one, written by hand, and real ones for a pipeline, by peft."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

PAIR = {"unet.a.lora_A.weight": (4, 8), "unet.a.lora_B.weight": (8, 4)}


def safetensors(shapes: Mapping[str, Sequence[int]] = PAIR, *, fill: bytes = b"\x01", **metadata: str) -> bytes:
    """A file of these tensors, 16-bit floats whose bytes are all `fill`."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, shape in shapes.items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    return with_header(header, fill * at)


def with_header(header: object, data: bytes = b"") -> bytes:
    """A file of this header, whatever it says, and these bytes behind it."""
    text = orjson.dumps(header)
    return struct.pack("<Q", len(text)) + text + data


def write_lora(
    pipe: Any, path: Path, *, rank: int = 4, seed: int = 1, part: str = "unet", alpha: int | None = None
) -> Path:
    """A real adapter of the attention layers of one of the pipeline's networks, neither of its matrices zero.

    `pipe` is not to be used any more afterwards.
    """
    import torch
    from peft import LoraConfig, get_peft_model_state_dict, inject_adapter_in_model

    network = getattr(pipe, part)
    targets = ["to_q", "to_k", "to_v"] if part in ("unet", "transformer") else ["q_proj", "v_proj"]
    generator = torch.Generator().manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=alpha or rank, target_modules=targets)
    inject_adapter_in_model(config, network, "made")
    weights = {
        name: torch.randn(tensor.shape, generator=generator) * 0.3
        for name, tensor in get_peft_model_state_dict(network, adapter_name="made").items()
    }
    metadata = {f"{part}_lora_adapter_metadata": network.peft_config["made"].to_dict()} if alpha else {}
    pipe.save_lora_weights(path.parent, **{f"{part}_lora_layers": weights}, weight_name=path.name, **metadata)
    return path
