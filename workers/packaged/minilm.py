"""all-MiniLM-L6-v2 as a GGUF: `python -m workers.packaged.minilm SOURCE_FOLDER TARGET`.

The package carries safetensors and a WordPiece vocabulary; llama.cpp wants its `bert` architecture. Run as a
process of its own, so that numpy and gguf stay out of the process that answers clients. Whoever changes what is
written raises `CONVERTER` in the catalogue.
"""

import json
import sys
from pathlib import Path

import gguf
from pydantic import Field
from safetensors import safe_open

from infra.errors import InvalidRequest
from infra.types import FarShape

PHANTOM_SPACE = "\u2581"
SPECIAL = frozenset({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})

OUTER_TENSORS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
LAYER_TENSORS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
UNUSED_TENSORS = frozenset({"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"})
"""The positions are 0, 1, 2, …, and the pooler is trained for another task: the vector is the mean of the states."""


class BertConfig(FarShape):
    """What `config.json` says of the network, as far as a GGUF must repeat it."""

    width: int = Field(alias="hidden_size")
    inner_width: int = Field(alias="intermediate_size")
    num_attention_heads: int
    num_hidden_layers: int
    max_position_embeddings: int
    token_kinds: int = Field(alias="type_vocab_size")
    token_count: int = Field(alias="vocab_size")
    layer_norm_eps: float
    hidden_act: str = Field(pattern="^gelu$")
    position_embedding_type: str = Field("absolute", pattern="^absolute$")


def convert(source: Path, target: Path) -> None:
    """Write the model in `source` (safetensors, config.json, vocab.txt) to `target` in 32-bit floats.

    Raises:
        InvalidRequest: a tensor that this does not know, or a vocabulary of another size than the network's.
    """
    config = BertConfig.model_validate_json((source / "config.json").read_bytes())
    tokens = read_vocabulary(source / "vocab.txt", config.token_count)
    writer = gguf.GGUFWriter(target, "bert")
    _add_network(writer, config)
    _add_vocabulary(writer, tokens, config.token_kinds)
    with safe_open(source / "model.safetensors", framework="numpy") as weights:
        for name in sorted(weights.keys()):
            if name not in UNUSED_TENSORS:
                writer.add_tensor(tensor_name(name), weights.get_tensor(name))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    writer.close()


def tensor_name(name: str) -> str:
    """llama.cpp's name of a BERT tensor.

    Raises:
        InvalidRequest: BERT has no such tensor.
    """
    stem, _, kind = name.rpartition(".")
    if stem in OUTER_TENSORS:
        return f"{OUTER_TENSORS[stem]}.{kind}"
    layer, _, inner = stem.removeprefix("encoder.layer.").partition(".")
    if not stem.startswith("encoder.layer.") or not layer.isdigit() or inner not in LAYER_TENSORS:
        raise InvalidRequest(f"tensor {name!r} is not one of a BERT; this is another model than the pinned one")
    return f"blk.{layer}.{LAYER_TENSORS[inner]}.{kind}"


def phantom_space(token: str) -> str:
    """A WordPiece as llama.cpp looks it up: a word's beginning carries a space mark, the rest carries no `##`."""
    if token in SPECIAL:
        return token
    return token[2:] if token.startswith("##") else PHANTOM_SPACE + token


def token_type(token: str) -> int:
    """llama.cpp's kind of a token: marks of the network's own are no text."""
    return int(gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL)


def read_vocabulary(path: Path, count: int) -> list[str]:
    """The tokens of `vocab.txt`, one a line, by id.

    Raises:
        InvalidRequest: it has not `count` lines, or lacks a special token.
    """
    tokens = path.read_text("utf-8").removesuffix("\n").split("\n")
    missing = sorted(SPECIAL - set(tokens))
    if len(tokens) != count or missing:
        raise InvalidRequest(
            f"{path} has {len(tokens)} tokens and lacks {missing}; the network expects {count}, all named"
        )
    return tokens


def _add_network(writer: gguf.GGUFWriter, config: BertConfig) -> None:
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_license("apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.inner_width)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_vocab_size(config.token_count)


def _add_vocabulary(writer: gguf.GGUFWriter, tokens: list[str], token_kinds: int) -> None:
    ids = {token: index for index, token in enumerate(tokens) if token in SPECIAL}
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")  # llama.cpp's name for this very vocabulary, lower-cased and without accents
    writer.add_token_list([phantom_space(token) for token in tokens])
    writer.add_token_types([token_type(token) for token in tokens])
    writer.add_token_type_count(token_kinds)
    writer.add_bos_token_id(ids["[CLS]"])
    writer.add_eos_token_id(ids["[SEP]"])
    writer.add_sep_token_id(ids["[SEP]"])
    writer.add_unk_token_id(ids["[UNK]"])
    writer.add_pad_token_id(ids["[PAD]"])
    writer.add_mask_token_id(ids["[MASK]"])


def main(arguments: list[str]) -> int:
    """Convert; 0 when the file is whole, 2 with a sentence on stderr when it cannot be made."""
    source, target = (Path(argument) for argument in arguments)
    try:
        convert(source, target)
    except (InvalidRequest, OSError, ValueError) as error:
        sys.stderr.write(f"{json.dumps(str(error), ensure_ascii=False)[1:-1]}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
