"""`dimensions` of embeddings, which llama.cpp ignores: vectors are cut and scaled back to length 1."""

import math
import sys
from array import array
from base64 import b64decode, b64encode

from infra.errors import EngineFailed, InvalidRequest
from infra.types import Json
from tasks.corrections.types import Body, Traits, number, objects


def applies(body: Body, _traits: Traits) -> bool:
    """The client wants shorter vectors."""
    return body.get("dimensions") is not None


def request(body: Body, _traits: Traits) -> Body:
    """As base64: floats are read from it ten times faster than from JSON numbers."""
    plain = {key: value for key, value in body.items() if key != "dimensions"}
    return {**plain, "encoding_format": "base64"}


def response(answer: Body, body: Body) -> Body:
    """The answer with shorter vectors, in the encoding that was asked for.

    Raises:
        InvalidRequest: the model has fewer dimensions.
        EngineFailed: the vectors cannot be read.
    """
    wanted, as_base64 = number(body.get("dimensions")), body.get("encoding_format") == "base64"
    data: list[Json] = []
    for item in objects(answer.get("data")):
        vector = shortened(_floats(item.get("embedding")), wanted)
        embedding: Json = b64encode(_little_endian(vector).tobytes()).decode() if as_base64 else list(vector)
        data.append({"object": "embedding", "index": item.get("index"), "embedding": embedding})
    return {**answer, "data": data}


def shortened(vector: "array[float]", dimensions: int) -> "array[float]":
    """The first `dimensions` values, scaled to length 1.

    Raises:
        InvalidRequest: the vector has fewer.
    """
    if dimensions > len(vector):
        raise InvalidRequest(
            f"this model's embeddings have {len(vector)} dimensions: ask for at most that many", param="dimensions"
        )
    cut = vector[:dimensions]
    length = math.sqrt(math.fsum(value * value for value in cut))
    return array("f", (value / length for value in cut)) if length else cut


def _floats(embedding: Json) -> "array[float]":
    if isinstance(embedding, list):
        return array("f", (float(value) for value in embedding if isinstance(value, int | float)))
    if not isinstance(embedding, str):
        raise EngineFailed("the engine's answer has no embedding in it")
    try:
        return _little_endian(array("f", b64decode(embedding, validate=True)))
    except ValueError as error:
        raise EngineFailed("the engine's embeddings cannot be read") from error


def _little_endian(vector: "array[float]") -> "array[float]":
    """Bytes on the wire are little-endian; turned around where this machine is not."""
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
