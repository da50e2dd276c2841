"""Tiny GGUF models with fixed random weights, written in milliseconds: real enough for llama.cpp to load and run.

Their words mean nothing; what they answer is the same on every run of one build of llama.cpp.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import gguf
import numpy as np
from numpy.typing import NDArray

CHATML_TEMPLATE: Final = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The chat template of `write_tiny_llama`."""

EMBEDDING_DIMENSIONS: Final = 64
"""Width of all three models, so the length of an embedding of `write_tiny_embedder`."""
TRAINED_CONTEXT_TOKENS: Final = 2048
"""Context that `write_tiny_llama` and `write_tiny_reranker` say they were trained for, in tokens."""
EMBEDDER_CONTEXT_TOKENS: Final = 512
"""The same of `write_tiny_embedder`."""

_HEADS, _KV_HEADS, _LAYERS, _FEED_FORWARD = 4, 2, 2, 128
_Tensor = NDArray[np.float32] | NDArray[np.float16]
_AddTensor = Callable[[str, _Tensor], None]


class _Weights:
    """Adds tensors to a file: matrices of half-precision noise, ones for norms, zeros for biases."""

    def __init__(self, writer: gguf.GGUFWriter, seed: int) -> None:
        self._add: _AddTensor = writer.add_tensor
        self._random = np.random.default_rng(seed)

    def matrix(self, name: str, *shape: int) -> None:
        noise = self._random.standard_normal(shape) / np.sqrt(shape[-1])
        self._add(f"{name}.weight", noise.astype(np.float16))

    def norm(self, name: str, width: int) -> None:
        self._add(f"{name}.weight", np.ones(width, np.float32))

    def bias(self, name: str, width: int) -> None:
        self._add(f"{name}.bias", np.zeros(width, np.float32))

    def table(self, name: str, *shape: int) -> None:
        """A lookup table in full precision."""
        self._add(f"{name}.weight", (self._random.standard_normal(shape) / 8).astype(np.float32))


def write_tiny_llama(path: Path, *, seed: int = 0, chat_template: str | None = CHATML_TEMPLATE) -> Path:
    """Write a chat model (architecture `llama`, byte-level vocabulary, ChatML) of about 260 kB; return `path`."""
    writer = gguf.GGUFWriter(path, "llama")
    _write_header(writer, "tiny-llama", TRAINED_CONTEXT_TOKENS)
    _write_decoder_header(writer)
    size = _add_sentencepiece_vocabulary(writer)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    _add_decoder(_Weights(writer, seed), size, qk_norm=False)
    return _finish(writer, path)


def write_tiny_reranker(path: Path, *, seed: int = 0) -> Path:
    """Write a cross-encoder (architecture `qwen3`, pooling `rank`, labels yes/no); return `path`."""
    writer = gguf.GGUFWriter(path, "qwen3")
    _write_header(writer, "tiny-reranker", TRAINED_CONTEXT_TOKENS)
    _write_decoder_header(writer)
    size = _add_sentencepiece_vocabulary(writer)
    writer.add_chat_template(CHATML_TEMPLATE)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(["yes", "no"])
    weights = _Weights(writer, seed)
    _add_decoder(weights, size, qk_norm=True)
    weights.matrix("cls.output", 2, EMBEDDING_DIMENSIONS)
    return _finish(writer, path)


def write_tiny_embedder(path: Path, *, seed: int = 0) -> Path:
    """Write an embedding model (architecture `bert`, pooling `mean`, lower-case letters as words); return `path`."""
    writer = gguf.GGUFWriter(path, "bert")
    _write_header(writer, "tiny-embedder", EMBEDDER_CONTEXT_TOKENS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    size = _add_wordpiece_vocabulary(writer)
    _add_encoder(_Weights(writer, seed), size)
    return _finish(writer, path)


def _write_header(writer: gguf.GGUFWriter, name: str, context_tokens: int) -> None:
    writer.add_name(name)
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(EMBEDDING_DIMENSIONS)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _write_decoder_header(writer: gguf.GGUFWriter) -> None:
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING_DIMENSIONS // _HEADS)
    writer.add_rope_freq_base(10000.0)


def _add_sentencepiece_vocabulary(writer: gguf.GGUFWriter) -> int:
    """Control tokens, one token a byte, one a printable ASCII character; return the vocabulary's size."""
    kind = gguf.TokenType
    tokens = [(b"<unk>", kind.UNKNOWN, 0.0)]
    tokens += [(name, kind.CONTROL, 0.0) for name in (b"<s>", b"</s>", b"<|im_start|>", b"<|im_end|>")]
    tokens += [(b"<0x%02X>" % byte, kind.BYTE, 0.0) for byte in range(256)]
    characters = ["\u2581", *(chr(code) for code in range(33, 127))]
    tokens += [(character.encode(), kind.NORMAL, -1.0) for character in characters]
    tokens += [(b"<pad%d>" % index, kind.UNUSED, 0.0) for index in range(-len(tokens) % 32)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _, _ in tokens])
    writer.add_token_types([int(token_kind) for _, token_kind, _ in tokens])
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(4)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_vocab_size(len(tokens))
    return len(tokens)


def _add_wordpiece_vocabulary(writer: gguf.GGUFWriter) -> int:
    """BERT's five special tokens, then each character as a word's start and as its continuation; return the size."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    types = [int(gguf.TokenType.CONTROL)] * len(tokens)
    for code in range(33, 127):
        tokens += ["\u2581" + chr(code), chr(code)]
    types += [int(gguf.TokenType.NORMAL)] * (len(tokens) - len(types))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)
    writer.add_mask_token_id(4)
    writer.add_vocab_size(len(tokens))
    return len(tokens)


def _add_decoder(weights: _Weights, vocabulary_size: int, *, qk_norm: bool) -> None:
    width, head = EMBEDDING_DIMENSIONS, EMBEDDING_DIMENSIONS // _HEADS
    weights.matrix("token_embd", vocabulary_size, width)
    weights.norm("output_norm", width)
    weights.matrix("output", vocabulary_size, width)
    for layer in range(_LAYERS):
        block = f"blk.{layer}."
        weights.norm(block + "attn_norm", width)
        weights.norm(block + "ffn_norm", width)
        weights.matrix(block + "attn_q", _HEADS * head, width)
        weights.matrix(block + "attn_k", _KV_HEADS * head, width)
        weights.matrix(block + "attn_v", _KV_HEADS * head, width)
        weights.matrix(block + "attn_output", width, _HEADS * head)
        weights.matrix(block + "ffn_gate", _FEED_FORWARD, width)
        weights.matrix(block + "ffn_up", _FEED_FORWARD, width)
        weights.matrix(block + "ffn_down", width, _FEED_FORWARD)
        if qk_norm:
            weights.norm(block + "attn_q_norm", head)
            weights.norm(block + "attn_k_norm", head)


def _add_encoder(weights: _Weights, vocabulary_size: int) -> None:
    width = EMBEDDING_DIMENSIONS
    weights.matrix("token_embd", vocabulary_size, width)
    weights.table("token_types", 2, width)
    weights.table("position_embd", EMBEDDER_CONTEXT_TOKENS, width)
    shapes = {"attn_q": width, "attn_k": width, "attn_v": width, "attn_output": width, "ffn_up": _FEED_FORWARD}
    norms = ["token_embd_norm"]
    for layer in range(_LAYERS):
        block = f"blk.{layer}."
        for name, rows in shapes.items():
            weights.matrix(block + name, rows, width)
            weights.bias(block + name, rows)
        weights.matrix(block + "ffn_down", width, _FEED_FORWARD)
        weights.bias(block + "ffn_down", width)
        norms += [block + "attn_output_norm", block + "layer_output_norm"]
    for name in norms:
        weights.norm(name, width)
        weights.bias(name, width)


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
