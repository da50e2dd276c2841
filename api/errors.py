"""Our error tree as HTTP: one table from error class to status and OpenAI's error object.

The first line of the table that fits holds, so a class stands above its base.
"""

import math

import orjson

from infra import errors
from infra.downloads import DownloadFailed
from infra.types import Json

_TABLE: tuple[tuple[type[errors.CoderAIError], int, str], ...] = (
    (errors.PayloadTooLarge, 413, "invalid_request_error"),
    (errors.NotAuthenticated, 401, "invalid_request_error"),
    (errors.Forbidden, 403, "invalid_request_error"),
    (errors.NotFound, 404, "invalid_request_error"),
    (errors.Conflict, 409, "invalid_request_error"),
    (errors.RunCancelled, 409, "invalid_request_error"),
    (errors.PayloadGone, 410, "invalid_request_error"),
    (errors.RateLimited, 429, "rate_limit_error"),
    (errors.NotInstalled, 501, "server_error"),
    (errors.SettingsInvalid, 500, "server_error"),
    (errors.UserError, 400, "invalid_request_error"),
    (errors.NoCapacity, 503, "server_error"),
    (errors.DiskFull, 507, "server_error"),
    (errors.ServiceDown, 502, "server_error"),
    (errors.LoadFailed, 503, "server_error"),
    (errors.EngineFailed, 502, "server_error"),
    (DownloadFailed, 502, "server_error"),
    (errors.DatabaseTooNew, 503, "server_error"),
    (errors.DatabaseUnusable, 503, "server_error"),
    (errors.Bug, 500, "server_error"),
)

Headers = list[tuple[bytes, bytes]]


def status_of(error: BaseException) -> int:
    """The HTTP status of an error; 500 for whatever is not in the table."""
    if isinstance(error, errors.UpstreamRefused):
        return error.status
    return next((status for kind, status, _type in _TABLE if isinstance(error, kind)), 500)


def error_body(error: BaseException) -> bytes:
    """OpenAI's error object. What is not ours is told to nobody but the log."""
    return orjson.dumps({"error": error_object(error)})


def error_object(error: BaseException) -> dict[str, Json]:
    """`{message, type, param, code}`."""
    if not isinstance(error, errors.CoderAIError) or isinstance(error, errors.Bug):
        return {
            "message": "the server made a mistake; its log has the details under this run's id",
            "type": "server_error",
            "param": None,
            "code": errors.Bug.code,
        }
    kind = "invalid_request_error" if isinstance(error, errors.UpstreamRefused) else "server_error"
    kind = next((word for cls, _status, word in _TABLE if isinstance(error, cls)), kind)
    return {"message": error.message, "type": kind, "param": error.param, "code": error.code}


def error_headers(error: BaseException) -> Headers:
    """`Retry-After` where coming back later helps, `WWW-Authenticate` where a key does."""
    headers: Headers = [(b"content-type", b"application/json")]
    if isinstance(error, errors.CoderAIError) and error.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s))).encode()))
    if isinstance(error, errors.NotAuthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
