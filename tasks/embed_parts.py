"""Embeddings in parts: one part on its engine, and what is made of all of them."""

import asyncio

import orjson

from infra.errors import EngineFailed
from infra.types import Json
from tasks.corrections.types import EMBEDDINGS
from tasks.generate import generate
from tasks.rerank import cosines
from tasks.split import parts_of
from tasks.types import TaskCall, TaskResult
from tasks.vectors import as_given, as_lists, pack


async def embed_part(call: TaskCall) -> TaskResult:
    """The vectors of `inputs["request"]`, in the order of its list: `{texts | packed, dimensions | lists, item,
    prompt_tokens, total_tokens}`; `item` is what else stands beside an embedding.

    The engine is asked for base64, whatever the client wants: it is read ten times faster than numbers.

    Raises:
        EngineFailed: as `generate`, or not every input has its embedding.
    """
    request = call.inputs["request"]
    assert isinstance(request, dict)
    inputs = request["input"]
    assert isinstance(inputs, list)
    asked: dict[str, Json] = {"path": EMBEDDINGS, "request": {**request, "encoding_format": "base64"}}
    result = await generate(call._replace(inputs=asked, channel=None))
    assert isinstance(result.value, bytes)
    part = _read(result.value, len(inputs))
    if part is None:
        raise EngineFailed(f"{call.leased().id} did not embed every input")
    return TaskResult(part, result.usage)


async def merge_embeddings(call: TaskCall) -> TaskResult:
    """OpenAI's answer: every embedding with its place in the whole list, usage summed.

    Raises:
        EngineFailed: a part's vectors cannot be read.
    """
    parts = parts_of(call)
    # In a thread: a long list of long vectors takes tens of milliseconds.
    data = await asyncio.to_thread(_data, parts, call.inputs["encoding_format"] == "base64")
    tokens = {name: _sum(parts, name) for name in ("prompt_tokens", "total_tokens")}
    head = orjson.dumps({"object": "list", "model": call.inputs["model"], "usage": tokens})
    return TaskResult(b'%s,"data":[%s]}' % (head[:-1], data))


async def compare_parts(call: TaskCall) -> TaskResult:
    """Cosines of the first embedding of the first part with each other one: `{scores: [-1 … 1], prompt_tokens}`.

    Raises:
        EngineFailed: the parts' vectors cannot be read, or are not of one length.
    """
    parts = parts_of(call)
    scores = await asyncio.to_thread(_compared, parts)
    return TaskResult({"scores": scores, "prompt_tokens": _sum(parts, "prompt_tokens")})


def _read(raw: bytes, count: int) -> dict[str, Json] | None:
    """A part's answer; None unless every input has its embedding."""
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    data = answer.get("data") if isinstance(answer, dict) else None
    embeddings: list[Json] = [None] * count
    items = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []
    for item in items:
        index = item.get("index")
        if isinstance(index, int) and 0 <= index < count:
            embeddings[index] = item.get("embedding")
    if not all(isinstance(each, str | list) and each for each in embeddings):
        return None
    beside = {name: value for name, value in items[0].items() if name not in ("index", "embedding")}
    usage = answer.get("usage")
    counts = {} if not isinstance(usage, dict) else usage
    tokens = {name: counts.get(name, 0) for name in ("prompt_tokens", "total_tokens")}
    return {**pack(embeddings), "item": beside, **tokens}


def _data(parts: list[dict[str, Json]], as_base64: bool) -> bytes:
    """The items of the answer, one after the other."""
    items: list[bytes] = []
    for part in parts:
        beside = part["item"]
        assert isinstance(beside, dict)
        if not as_base64:
            beside = {name: value for name, value in beside.items() if name != "encoding_format"}
        for embedding in as_given(part) if as_base64 else as_lists(part):
            items.append(orjson.dumps({**beside, "index": len(items), "embedding": embedding}))
    return b",".join(items)


def _compared(parts: list[dict[str, Json]]) -> list[Json]:
    vectors = [vector for part in parts for vector in as_lists(part)]
    if len({len(vector) for vector in vectors}) != 1:
        raise EngineFailed("the parts' embeddings are not of one length")
    return cosines(vectors[0], vectors[1:])


def _sum(parts: list[dict[str, Json]], name: str) -> int:
    return sum(value for part in parts if isinstance(value := part[name], int))
