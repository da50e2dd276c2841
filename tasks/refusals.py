"""What an engine says when it does not answer with 200, as an error of ours."""

from collections.abc import Awaitable, Callable

import orjson

from infra.errors import CoderAIError, EngineFailed, ModelLoading, UpstreamRefused
from infra.types import Json
from tasks.corrections.refusals import known_refusal

REFUSAL_MOST_BYTES = 65536
"""Of a refusal that is read."""
_MAX_MESSAGE = 2000
_MAX_WORD = 200
_BETWEEN_US = frozenset({401, 402, 403, 404, 405, 407, 408, 429})
"""Our key for the engine, its bill, its names for its models and routes, what stands before it, its own limits."""


async def beginning(piece: Callable[[], Awaitable[bytes]]) -> bytes:
    """What is read of a refusal that comes in pieces; `piece` returns nothing only at its end."""
    said = b""
    while len(said) < REFUSAL_MOST_BYTES and (more := await piece()):
        said += more
    return said[:REFUSAL_MOST_BYTES]


def refusal(engine: str, path: str, status: int, body: bytes, *, ours: bool) -> CoderAIError:
    """The error for an engine's refusal of a request to `path`; `ours`: it is a llama.cpp of this install.

    A 4xx is the request's fault and is passed on, except those that are between us and the engine; they and 5xx may be
    tried elsewhere. What is said of our key is not repeated: some services say it with the key.
    """
    if status == 401:
        return EngineFailed(f"{engine} refused our key for it with HTTP 401: the operator has to renew it")
    detail = _detail(body)
    message = str(detail.get("message") or "")[:_MAX_MESSAGE] or f"HTTP {status}"
    if ours and (known := known_refusal(path, detail)) is not None:
        return known
    if status == 503 and detail.get("type") == "unavailable_error":
        return ModelLoading(f"{engine} is not ready: {message}", retry_after_s=2)
    if 400 <= status < 500 and status not in _BETWEEN_US:
        param, code = detail.get("param"), detail.get("code")
        return UpstreamRefused(
            message,
            status=status,
            param=param[:_MAX_WORD] if isinstance(param, str) else None,
            code=code[:_MAX_WORD] if isinstance(code, str) else "invalid_request",
        )
    return EngineFailed(f"{engine} refused with HTTP {status}: {message}")


def _detail(body: bytes) -> dict[str, Json]:
    """The error object, from whichever of the shapes in use the engine sends."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[:200].decode(errors="replace").strip()}
    if not isinstance(parsed, dict):
        return {}
    error = parsed.get("error", parsed.get("detail", parsed))
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}
