"""The request of a run as the one parameter of its flow run, and the way back.

It stands there in one of three forms: the request itself, `{"$blob": "sha256:…"}` where it is large or not for
everybody's eyes, `{"$gone": "a sentence"}` where it is not kept.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import orjson

from infra.blobs import Blobs, is_ref
from infra.errors import InvalidRequest, NotFound, PayloadGone
from infra.types import Json

INLINE_BYTES: Final = 64 << 10
"""Largest request that stands in the parameter itself."""
_NOT_INLINE: Final = (b"__prefect", b'"$ref"', b"\\u0000")
"""Prefect renders templates that it finds in a flow run's parameters, its flow engine takes every `$ref` (of a tool's
JSON schema, say) for one of its blocks, and no PostgreSQL takes a NUL in JSON."""
BLOB: Final = "$blob"
GONE: Final = "$gone"

Parameter = dict[str, Json]


class Store(Protocol):
    """Where large requests go (`Blobs`)."""

    def put(self, data: bytes) -> str:
        """Keep `data`; returns its reference."""


def make_parameter(request: Json, blobs: Store, *, inline_bytes: int = INLINE_BYTES) -> Parameter:
    """The parameter for `request`; what is over `inline_bytes` as JSON goes to `blobs`.

    A whole number of more than 64 bits becomes the nearest float, which is what it was to the front that took it.
    A request with a key that starts with `$` is never inline: a client could write a reference to what is not its own.
    Nor is one with anything in it that Prefect would take for its own.

    Raises:
        InvalidRequest: the request is no JSON object, or nested too deeply.
        DiskFull: there is no room for the blob.
    """
    if not isinstance(request, dict):
        raise InvalidRequest("a request is a JSON object")
    try:
        text = orjson.dumps(request)
    except orjson.JSONEncodeError:
        request = _stored(request)
        text = orjson.dumps(request)
    if (
        len(text) > inline_bytes
        or any(key.startswith("$") for key in request)
        or any(map(text.__contains__, _NOT_INLINE))
    ):
        return {BLOB: blobs.put(text)}
    return request


def blob_parameter(ref: str) -> Parameter:
    """The parameter for a request that is a blob already.

    Raises:
        InvalidRequest: that is no reference.
    """
    if not is_ref(ref):
        raise InvalidRequest(f"{ref[:100]!r} is no reference of a blob")
    return {BLOB: ref}


def gone(reason: str) -> Parameter:
    """The parameter of a run whose request is not kept; `reason` is a sentence for whoever wants to retry it."""
    return {GONE: reason}


def resolve(parameter: Mapping[str, Json], stores: Iterable[Blobs]) -> Parameter:
    """The request that the parameter stands for; a blob is looked for in each of `stores`.

    Raises:
        PayloadGone: it is not kept, or not any more; the message says why.
    """
    if len(parameter) == 1 and GONE in parameter:
        raise PayloadGone(f"This run cannot be executed again: {parameter[GONE]}")
    if len(parameter) != 1 or BLOB not in parameter:
        return dict(parameter)
    text = _content(str(parameter[BLOB]), stores)
    try:
        request = orjson.loads(text)  # as the front reads it: other readers know other numbers, and less nesting
    except orjson.JSONDecodeError:
        request = None
    if not isinstance(request, dict):
        raise PayloadGone("This run cannot be executed again: what was kept of it is no request")
    return request


def _stored(request: Parameter) -> Parameter:
    try:
        storable = {key: _storable(value) for key, value in request.items()}
        orjson.dumps(storable)
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise InvalidRequest("the request is nested too deeply: flatten it, 250 levels are the most") from error
    return storable


def _storable(value: Json) -> Json:
    match value:
        case int() if not -(2**63) <= value < 2**64:
            return float(value)
        case dict():
            return {key: _storable(item) for key, item in value.items()}
        case list():
            return [_storable(item) for item in value]
        case _:
            return value


def _content(ref: str, stores: Iterable[Blobs]) -> bytes:
    reason = f"{ref!r} is in no store"
    for blobs in stores:
        try:
            return blobs.get(ref)
        except NotFound as error:
            reason = error.message
    raise PayloadGone(f"This run cannot be executed again: its request is not kept any more ({reason})")
