"""Vectors and scores of texts with sentence-transformers: `/embeddings` and `/rerank`.

The folder is read again before it is loaded: what it holds may have changed since it was added, and the library would
run a program that lies in it. Requests take turns batch by batch: the tokenizer and the threads of torch are one.
"""

import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer

from infra.errors import InvalidRequest, LoadFailed
from infra.types import Json
from workers.engine.runtimes.protocol import Ask, Handler, Reply
from workers.folders.encoders import positions_of
from workers.folders.reading import read_folder
from workers.wire import EngineLaunch

_BATCH: Final = 32
"""Texts that go through the network at once: sentence-transformers' own default."""
_BATCH_TOKENS: Final = 8192
"""Tokens of a batch, filled up to its longest text: attention takes memory by the square of a text's length."""
_TOO_LONG: Final = "context_length_exceeded"
_MOST_REASON: Final = 300

Vectors = NDArray[np.float32]


class Embedder:
    """`/embeddings`: `input` is a text, a list of texts, tokens or a list of lists of tokens. Answers OpenAI's object;
    its vectors have the length 1 and are numbers or, with `encoding_format: base64`, little-endian floats."""

    def __init__(self) -> None:
        self._model: Any = None
        self._most_tokens = 0
        self._prompt = ""
        """What the model wants before every text."""
        self._prompt_tokens = 0
        self._one = threading.Lock()

    def load(self, launch: EngineLaunch) -> None:
        """See `Runtime.load`. A folder without `modules.json` gets mean pooling."""
        path = _prepared(launch)
        self._model = _loaded(SentenceTransformer, path, launch)
        self._most_tokens = _limit(self._model, launch)
        self._prompt = self._model.prompts.get(self._model.default_prompt_name or "") or ""
        before = self._tokens("")
        self._prompt_tokens = len(before) - (
            before[-1:] in [[token] for token in self._model.tokenizer.all_special_ids]
        )
        self._forward([self._tokens("warm up")], prompted=True)

    def routes(self) -> Mapping[str, Handler]:
        """See `Runtime.routes`."""
        return {"/embeddings": self._embeddings}

    def _embeddings(self, ask: Ask) -> Reply:
        given = ask.body.get("input")
        inputs = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
        with self._one:
            tokens = [self._read(each) for each in inputs]
        vectors: list[Vectors | None] = [None] * len(tokens)
        done = 0
        for batch in _batches([len(each) for each in tokens]):
            ask.check()
            with self._one:
                made = self._forward([tokens[place] for place in batch], prompted=isinstance(inputs[0], str))
            for place, vector in zip(batch, made, strict=True):
                vectors[place] = vector
            done += len(batch)
            ask.progress.tell("embedding", done, len(tokens))
        return _answer(ask, [vector for vector in vectors if vector is not None], sum(map(len, tokens)))

    def _read(self, given: Json) -> list[int]:
        """One input as tokens.

        Raises:
            InvalidRequest: it is neither a text nor tokens of this model, or longer than the model reads.
        """
        if isinstance(given, str) and given:
            tokens = self._tokens(given)
        elif isinstance(given, list) and given:
            tokens = [each for each in given if type(each) is int and 0 <= each < len(self._model.tokenizer)]
            if len(tokens) != len(given):
                raise InvalidRequest("'input' has a token that is not in this model's vocabulary", param="input")
        else:
            raise InvalidRequest(
                "'input' must be a text, tokens, or a list of either; none may be empty", param="input"
            )
        if len(tokens) > self._most_tokens:
            raise InvalidRequest(
                f"This model's maximum context length is {self._most_tokens} tokens. However, your input resulted in "
                f"{len(tokens)} tokens. Please reduce the length of the input.",
                param="input",
                code=_TOO_LONG,
            )
        return tokens

    def _tokens(self, text: str) -> list[int]:
        """A text's tokens with those that the model wants around them, after the model's own prompt if it has one."""
        found: list[int] = self._model.tokenizer(self._prompt + text, truncation=False, verbose=False)["input_ids"]
        return found

    def _forward(self, batch: Sequence[list[int]], *, prompted: bool) -> Vectors:
        """The vectors of one batch, each of length 1."""
        padded = self._model.tokenizer.pad({"input_ids": list(batch)}, padding=True, return_tensors="pt", verbose=False)
        features = dict(padded)
        if prompted and self._prompt:
            features["prompt_length"] = self._prompt_tokens
        with torch.inference_mode():
            on_device = {name: _moved(value, self._model.device) for name, value in features.items()}
            made = self._model(on_device)["sentence_embedding"].float()
            unit: Vectors = torch.nn.functional.normalize(made, dim=-1).cpu().numpy()
        return unit


class Reranker:
    """`/rerank`: `query` and `documents`, all of them texts. Answers `{results: [{index, relevance_score}], usage}`, a
    score as the cross-encoder gives it. A pair that is too long is cut, as `CrossEncoder.predict` does it."""

    def __init__(self) -> None:
        self._model: Any = None
        self._most_tokens = 0
        self._one = threading.Lock()

    def load(self, launch: EngineLaunch) -> None:
        """See `Runtime.load`."""
        path = _prepared(launch)
        self._model = _loaded(CrossEncoder, path, launch)
        self._most_tokens = _limit(self._model, launch)
        self._scores([("warm", "up")])

    def routes(self) -> Mapping[str, Handler]:
        """See `Runtime.routes`."""
        return {"/rerank": self._rerank}

    def _rerank(self, ask: Ask) -> Reply:
        query, documents = ask.body.get("query"), ask.body.get("documents")
        if not isinstance(query, str) or not query:
            raise InvalidRequest("'query' must be a text that is not empty", param="query")
        if not isinstance(documents, list) or not documents or not all(isinstance(each, str) for each in documents):
            raise InvalidRequest("'documents' must be a list of texts", param="documents")
        pairs = [(query, str(document)) for document in documents]
        with self._one:
            lengths = [len(tokens) for tokens in self._tokens(pairs)]
        results: list[Json] = []
        for batch in _batches(lengths):
            ask.check()
            with self._one:
                scores = self._scores([pairs[place] for place in batch])
            results += [{"index": place, "relevance_score": score} for place, score in zip(batch, scores, strict=True)]
            ask.progress.tell("scoring", len(results), len(pairs))
        tokens = sum(lengths)
        usage: Json = {"prompt_tokens": tokens, "total_tokens": tokens}
        body = {"object": "list", "model": ask.body.get("model"), "results": results, "usage": usage}
        return Reply(orjson.dumps(body))

    def _tokens(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """The tokens of each pair that the network will see."""
        read = self._model.tokenizer(
            [query for query, _ in pairs],
            [document for _, document in pairs],
            truncation="longest_first",
            max_length=self._most_tokens,
            verbose=False,
        )
        found: list[list[int]] = read["input_ids"]
        return found

    def _scores(self, pairs: list[tuple[str, str]]) -> list[float]:
        scores = self._model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, convert_to_numpy=True)
        return [float(score) for score in scores]


def _prepared(launch: EngineLaunch) -> Path:
    """The folder, whole and without anything that could run; torch's threads are set.

    Raises:
        LoadFailed: it is not what it was.
    """
    path = launch.entry.path
    assert path is not None
    try:
        read_folder(path)
    except InvalidRequest as error:
        raise LoadFailed(error.message) from error
    torch.set_num_threads(launch.threads)
    return path


def _loaded(kind: Any, path: Path, launch: EngineLaunch) -> Any:
    """The model on its card, from local safetensors alone.

    Raises:
        LoadFailed: it cannot be loaded, or not there.
    """
    if launch.backend != "cpu" and not torch.cuda.is_available():
        raise LoadFailed(
            f"this install's torch {torch.__version__} cannot use {launch.backend} cards: install the build of torch "
            'that is made for yours, or pin the model to the CPU (engine = "cpu")'
        )
    try:
        return kind(
            str(path),
            device="cpu" if launch.backend == "cpu" else "cuda",  # torch calls ROCm's cards so, too
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except ImportError:
        raise  # a library that this very model needs is missing
    except Exception as error:
        reason = " ".join(str(error).split())[:_MOST_REASON]
        raise LoadFailed(f"sentence-transformers cannot load {path}: {type(error).__name__}: {reason}") from error


def _limit(model: Any, launch: EngineLaunch) -> int:
    """Tokens of the longest text: the entry's own number, else the model's. The model is told.

    Raises:
        LoadFailed: the entry wants more than the model has positions for.
    """
    own, positions = model.max_seq_length, positions_of(model[0].config.to_dict())
    limit: int = launch.entry.context_tokens or min(own or launch.context_tokens, launch.context_tokens)
    if positions is not None and limit > positions:
        raise LoadFailed(f"context_tokens is {limit}, and the model has positions for {positions} tokens: lower it")
    model.max_seq_length = limit
    return limit


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of all texts in batches, the longest first: texts of like length need little filling up."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) == _BATCH or (len(batch) + 1) * lengths[batch[0]] > _BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _moved(value: Any, device: Any) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _answer(ask: Ask, vectors: Sequence[Vectors], tokens: int) -> Reply:
    as_base64 = ask.body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    body = {"object": "list", "model": ask.body.get("model"), "data": data, "usage": usage}
    return Reply(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY))
