"""A network that reads text: of sentence-transformers or a plain encoder, which give a vector; or a cross-encoder,
which gives a score. `config.json` and safetensors, with `modules.json` where more follows it."""

import re
from typing import Final

from infra.errors import InvalidRequest
from infra.types import Json
from workers.folders.facts import FolderFacts
from workers.folders.files import Folder
from workers.folders.tensors import loaded_files, size_of
from workers.types import Capability, ModelFormat, Pooling

MODULES: Final = "modules.json"
CONFIG: Final = "config.json"
_MODULE: Final = re.compile(
    r"sentence_transformers(\.[a-z_]+)+\.(?P<kind>Transformer|Pooling|Normalize|Dense|LayerNorm)"
)
"""Modules that read text alone. The library would import any other class that is named, or a program in the folder."""
_ACTIVATION: Final = re.compile(r"torch\.nn(\.\w+)+")
_ENCODERS: Final = frozenset({
    "albert", "bert", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "esm",
    "eurobert", "gte", "mobilebert", "modernbert", "mpnet", "nomic_bert", "rembert", "roberta", "roformer",
    "xlm-roberta", "xlm-roberta-xl",
})  # fmt: skip
"""transformers' types of networks that look at a whole text at once."""
_AFTER_PADDING: Final = frozenset({"camembert", "esm", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"})
"""Those whose positions begin after the padding token's number, so that fewer tokens fit."""
_TOKENIZERS: Final = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
_MOST_TOKENS: Final = 1_000_000
"""A tokenizer without a limit says a number far beyond."""
_POOLINGS: Final = {"mean": Pooling.MEAN, "cls": Pooling.CLS, "lasttoken": Pooling.LAST}
_OLD_MODES: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""How sentence-transformers wrote a pooling down before its version 5.2."""


def read_encoder(folder: Folder) -> FolderFacts:
    """What the folder is.

    Raises:
        InvalidRequest: it reads something else than text, gives something else, has pickles, or a file is missing.
    """
    modules = _modules(folder)
    network = folder.folder(modules[0][1]) if modules else folder
    config = network.json(CONFIG)
    kind = _kind(folder, config, bare=not modules)
    if not network.has(*_TOKENIZERS):
        raise InvalidRequest(f"{network.path} has no tokenizer ({', '.join(_TOKENIZERS[:3])} …): get it too")
    width: int | None = None
    pooling: Pooling | None = Pooling.RANK
    extra_bytes = 0
    if kind is Capability.EMBEDDINGS:
        width = _whole(config, "hidden_size", "dim", "d_model", "n_embd")
        width, pooling, extra_bytes = _after(folder, modules, width)
    return FolderFacts(
        path=folder.path,
        format=ModelFormat.SENTENCE_TRANSFORMERS,
        capabilities=(kind,),
        architecture=str(config.get("model_type") or "transformer")[:100],
        weights_bytes=size_of(loaded_files(network)) + extra_bytes,
        context_tokens=_context_tokens(network, config),
        embedding_dimensions=width,
        pooling=pooling,
    )


def module_folders(modules: Json) -> tuple[str, ...]:
    """The folders that a `modules.json` names."""
    given = [each.get("path") for each in modules if isinstance(each, dict)] if isinstance(modules, list) else []
    return tuple(path for path in given if isinstance(path, str) and path)


def positions_of(config: dict[str, Json]) -> int | None:
    """Tokens that a network has positions for, by its configuration; None where there is no limit to them."""
    positions = _whole(config, "max_position_embeddings", "n_positions")
    if positions is not None and config.get("model_type") in _AFTER_PADDING:
        positions -= (_whole(config, "pad_token_id") or 1) + 1
    return positions


def _modules(folder: Folder) -> list[tuple[str, str]]:
    """What sentence-transformers runs one after the other: kinds of modules, with their folders' names."""
    if not folder.has(MODULES):
        return []
    found: list[tuple[str, str]] = []
    given = folder.parsed(MODULES)
    for each in given if isinstance(given, list) else []:
        reference = str(each.get("type")) if isinstance(each, dict) else ""
        match = _MODULE.fullmatch(reference)
        if match is None or not isinstance(each, dict):
            raise InvalidRequest(
                f"{folder.path / MODULES} wants {reference[:100]!r}: served are models of text, made of "
                "sentence-transformers' own modules Transformer, Pooling, Dense, LayerNorm and Normalize"
            )
        path = each.get("path")
        found.append((match["kind"], path if path == "" else folder.plain(path)))
    if not found or found[0][0] != "Transformer" or [kind for kind, _ in found].count("Transformer") != 1:
        raise InvalidRequest(f"{folder.path / MODULES} does not begin with one Transformer: this is no model of text")
    return found


def _kind(folder: Folder, config: dict[str, Json], *, bare: bool) -> Capability:
    """What the network gives. A `bare` one has nothing after it that makes a vector, so that it must be an encoder."""
    listed = config.get("architectures")
    architecture = str(listed[0]) if isinstance(listed, list) and listed else ""
    if folder.optional("config_sentence_transformers.json").get("model_type") == "SparseEncoder":
        raise InvalidRequest(f"{folder.path} gives sparse vectors, which are not served: choose a model of dense ones")
    if architecture.endswith("ForSequenceClassification"):
        labels = config.get("id2label")
        count = len(labels) if isinstance(labels, dict) else _whole(config, "num_labels") or 2
        if count != 1:
            raise InvalidRequest(f"{folder.path} sorts texts into {count} classes: a reranker has one label, its score")
        return Capability.RERANK
    if bare and (config.get("model_type") not in _ENCODERS or not architecture.endswith(("Model", "ForMaskedLM"))):
        raise InvalidRequest(
            f"{folder.path} is a {architecture or 'network of no known kind'} ({config.get('model_type')}): of folders "
            "with a config.json encoders, rerankers and models of sentence-transformers are served. Get a language "
            "model as GGUF"
        )
    return Capability.EMBEDDINGS


def _after(folder: Folder, modules: list[tuple[str, str]], width: int | None) -> tuple[int | None, Pooling | None, int]:
    """What the modules after the network make of its `width`: a vector's length, the pooling, bytes of weights."""
    pooling = Pooling.MEAN if not modules else None
    extra_bytes = 0
    for kind, path in modules[1:]:
        part = folder.folder(path)
        if kind == "Pooling":
            config = part.json(CONFIG)
            modes = _pooling_modes(config)
            width = len(modes) * (_whole(config, "embedding_dimension", "word_embedding_dimension") or width or 0)
            pooling = _POOLINGS.get(modes[0]) if len(modes) == 1 else None
        elif kind in ("Dense", "LayerNorm"):
            config = part.json(CONFIG)
            if kind == "Dense" and not _ACTIVATION.fullmatch(str(config.get("activation_function"))):
                raise InvalidRequest(f"{part.path / CONFIG} wants an activation function that is none of torch's")
            width = _whole(config, "out_features") or width
            extra_bytes += size_of(loaded_files(part))
    return width or None, pooling, extra_bytes


def _pooling_modes(config: dict[str, Json]) -> list[str]:
    given = config.get("pooling_mode")
    if isinstance(given, str):
        return [given]
    if isinstance(given, list):
        return [str(mode) for mode in given]
    return [mode for key, mode in _OLD_MODES.items() if config.get(key) is True] or ["mean"]


def _context_tokens(network: Folder, config: dict[str, Json]) -> int | None:
    """The longest text that is read whole: sentence-transformers' limit, else the tokenizer's, within the positions."""
    own = _whole(network.optional("sentence_bert_config.json"), "max_seq_length")
    tokenizer = _whole(network.optional("tokenizer_config.json"), "model_max_length")
    limits = [
        limit for limit in (own or tokenizer, positions_of(config)) if limit is not None and 0 < limit < _MOST_TOKENS
    ]
    return min(limits, default=None)


def _whole(config: dict[str, Json], *keys: str) -> int | None:
    """The first of these that is a number that makes sense."""
    for key in keys:
        value = config.get(key)
        if type(value) is int and value > 0:
            return value
    return None
