"""What an engine says when it does not answer with 200, as an error of ours."""

import orjson

from infra.errors import CoderAIError, EngineFailed, ModelLoading, UpstreamRefused
from infra.types import Json
from tasks.corrections.refusals import known_refusal

_MAX_MESSAGE = 2000


def refusal(engine: str, path: str, status: int, body: bytes, *, ours: bool) -> CoderAIError:
    """The error for an engine's refusal of a request to `path`; `ours`: it is a llama.cpp of this install.

    A 4xx is the request's fault and is passed on, except 401 and 403 (our key for the engine, not the caller's) and
    429 (the engine's own limit); those and 5xx may be tried elsewhere.
    """
    detail = _detail(body)
    message = str(detail.get("message") or "")[:_MAX_MESSAGE] or f"HTTP {status}"
    if ours and (known := known_refusal(path, detail)) is not None:
        return known
    if status == 503 and detail.get("type") == "unavailable_error":
        return ModelLoading(f"{engine} is not ready: {message}", retry_after_s=2)
    if 400 <= status < 500 and status not in (401, 403, 429):
        param, code = detail.get("param"), detail.get("code")
        return UpstreamRefused(
            message,
            status=status,
            param=param if isinstance(param, str) else None,
            code=code if isinstance(code, str) else "invalid_request",
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
