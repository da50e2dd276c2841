"""The vectors of a part, as a step's result: texts, which are written and read in one go, where numbers take long."""

import base64
import sys
from array import array
from collections.abc import Iterator
from itertools import chain
from typing import cast

from infra.errors import EngineFailed
from infra.types import Json

_NUMBERS = frozenset({int, float})


def pack(embeddings: list[Json]) -> dict[str, Json]:
    """Embeddings as an engine gave them: base64 texts as they are; vectors of one length as one text of doubles, which
    keep every number; anything else as it is."""
    if all(isinstance(each, str) for each in embeddings):
        return {"texts": embeddings}
    vectors = [cast(list[float], each) for each in embeddings if isinstance(each, list)]
    lengths = {len(vector) for vector in vectors}
    flat = all(_NUMBERS.issuperset(map(type, vector)) for vector in vectors)
    if not flat or len(vectors) != len(embeddings) or len(lengths) != 1:
        return {"lists": embeddings}
    return {"packed": _text(array("d", chain.from_iterable(vectors))), "dimensions": lengths.pop()}


def as_given(packed: dict[str, Json]) -> Iterator[Json]:
    """The embeddings as they were packed."""
    if "packed" in packed:
        yield from cast("Iterator[Json]", as_lists(packed))
        return
    values = packed["texts"] if "texts" in packed else packed["lists"]
    assert isinstance(values, list)
    yield from values


def as_lists(packed: dict[str, Json]) -> Iterator[list[float]]:
    """The embeddings as numbers.

    Raises:
        EngineFailed: a base64 text is none, or does not hold floats.
    """
    if "packed" in packed:
        whole, dimensions = _floats(packed["packed"], "d"), packed["dimensions"]
        assert isinstance(dimensions, int)
        for begin in range(0, len(whole), max(1, dimensions)):
            yield whole[begin : begin + dimensions].tolist()
        return
    values = packed["texts"] if "texts" in packed else packed["lists"]
    assert isinstance(values, list)
    for value in values:
        yield cast(list[float], value) if isinstance(value, list) else _floats(value, "f").tolist()


def _text(numbers: "array[float]") -> str:
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()


def _floats(text: Json, kind: str) -> "array[float]":
    numbers: array[float] = array(kind)
    try:
        numbers.frombytes(base64.b64decode(cast(str, text), validate=True))
    except ValueError as error:
        raise EngineFailed("an embedding that should be base64 is none") from error
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
