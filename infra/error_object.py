"""Our error tree in OpenAI's words: one table from error class to HTTP status and kind.

The first line of the table that fits holds, so a class stands above its base.
"""

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


def status_of(error: BaseException) -> int:
    """The HTTP status of an error; 500 for whatever is not in the table."""
    if isinstance(error, errors.UpstreamRefused):
        return error.status
    return next((status for kind, status, _type in _TABLE if isinstance(error, kind)), 500)


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
