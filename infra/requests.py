"""The request of a run as the one parameter of its flow run, and the way back.

It stands there in one of three forms: the request itself, `{"$blob": "sha256:…"}` where it is large or not for
everybody's eyes, `{"$gone": "a sentence"}` where it is not kept.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import orjson
from pydantic import TypeAdapter, ValidationError

from infra.blobs import Blobs, is_ref
from infra.errors import InvalidRequest, NotFound, PayloadGone
from infra.types import Json

INLINE_BYTES: Final = 64 << 10
"""Largest request that stands in the parameter itself."""
BLOB: Final = "$blob"
GONE: Final = "$gone"

Parameter = dict[str, Json]
_REQUEST: Final[TypeAdapter[Parameter]] = TypeAdapter(Parameter)


def make_parameter(request: Json, blobs: Blobs, *, inline_bytes: int = INLINE_BYTES) -> Parameter:
    """The parameter for `request`; what is over `inline_bytes` as JSON goes to `blobs`.

    A request with a key that starts with `$` is never inline: a client could write a reference to what is not its own.

    Raises:
        InvalidRequest: the request is no JSON object.
        DiskFull: there is no room for the blob.
    """
    if not isinstance(request, dict):
        raise InvalidRequest("a request is a JSON object")
    text = orjson.dumps(request)
    if len(text) <= inline_bytes and not any(key.startswith("$") for key in request):
        return request
    return {BLOB: blobs.put(text)}


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
        return _REQUEST.validate_json(text)
    except ValidationError as error:
        raise PayloadGone("This run cannot be executed again: what was kept of it is no request") from error


def _content(ref: str, stores: Iterable[Blobs]) -> bytes:
    reason = f"{ref!r} is in no store"
    for blobs in stores:
        try:
            return blobs.get(ref)
        except NotFound as error:
            reason = error.message
    raise PayloadGone(f"This run cannot be executed again: its request is not kept any more ({reason})")
