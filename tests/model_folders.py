"""Tiny folders of models, whole as far as their readers look: right files and headers, weights that mean nothing."""

import json
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from infra.types import Json

BERT: dict[str, Json] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
"""The configuration of a small encoder."""
PIPELINE: dict[str, Json] = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.42.1",
    "scheduler": ["diffusers", "PNDMScheduler"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "safety_checker": [None, None],
    "requires_safety_checker": False,
}
"""The index of a small pipeline."""


def write_json(path: Path, value: Json) -> Path:
    """A file of JSON, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def write_tensors(path: Path, *names: str, values: int = 8) -> Path:
    """A file of float32 tensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.zeros(values, np.float32) for name in names or ("weight",)}, path)
    return path


def write_encoder(folder: Path, config: dict[str, Json] | None = None) -> Path:
    """An encoder of transformers; return `folder`."""
    write_json(folder / "config.json", config or BERT)
    write_json(folder / "tokenizer_config.json", {"model_max_length": 48})
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    write_tensors(folder / "model.safetensors")
    return folder


def write_sentence_model(folder: Path, *, dense: int | None = None) -> Path:
    """The same as a model of sentence-transformers: mean pooling, a layer to `dense` values, normalised."""
    write_encoder(folder)
    kinds = ["Transformer", "Pooling", *(["Dense"] if dense else []), "Normalize"]
    modules: list[Json] = [
        {
            "idx": place,
            "name": str(place),
            "path": f"{place}_{kind}" if place else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for place, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    pooling: dict[str, Json] = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    if dense:
        activation = "torch.nn.modules.activation.Tanh"
        layer: dict[str, Json] = {"in_features": 16, "out_features": dense, "activation_function": activation}
        write_json(folder / "2_Dense" / "config.json", layer)
        write_tensors(folder / "2_Dense" / "model.safetensors", "linear.weight")
    return folder


def write_cross_encoder(folder: Path, labels: int = 1) -> Path:
    """A cross-encoder; return `folder`."""
    names: dict[str, Json] = {str(place): f"LABEL_{place}" for place in range(labels)}
    return write_encoder(folder, {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": names})


def write_pipeline(folder: Path, index: dict[str, Json] | None = None) -> Path:
    """A pipeline of diffusers; return `folder`."""
    write_json(folder / "model_index.json", index or PIPELINE)
    write_json(folder / "scheduler" / "scheduler_config.json", {})
    write_json(folder / "tokenizer" / "tokenizer_config.json", {})
    write_json(folder / "tokenizer" / "vocab.json", {})
    for part in ("unet", "vae"):
        write_json(folder / part / "config.json", {})
        write_tensors(folder / part / "diffusion_pytorch_model.safetensors")
    return folder


def write_whisper(folder: Path, spec: bytes = b"WhisperSpec") -> Path:
    """A folder of CTranslate2; return `folder`."""
    write_json(folder / "config.json", {"alignment_heads": []})
    write_json(folder / "tokenizer.json", {})
    (folder / "vocabulary.txt").write_text("a\n")
    head = struct.pack("<IH", 6, len(spec) + 1) + spec + b"\0"
    (folder / "model.bin").write_bytes(head + bytes(100))
    return folder


def write_voice(folder: Path, name: str = "en_GB-ann-low") -> Path:
    """A voice of piper; return its network's path."""
    write_json(folder / f"{name}.onnx.json", {"audio": {"sample_rate": 16000}, "phoneme_id_map": {"a": [1]}})
    (folder / f"{name}.onnx").write_bytes(b"\x08\x07" + bytes(98))
    return folder / f"{name}.onnx"
