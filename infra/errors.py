"""The error tree. The meaning is in the name; the edge maps each class to one HTTP status (`api/errors.py`).

Every message is a sentence that says what to do. `param` names the request's field at fault, `code` is OpenAI's
short machine-readable word.
"""


class CoderAIError(Exception):
    """Base of all errors that a person may see."""

    code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s


class UserError(CoderAIError):
    """The caller can mend it: a bad request, file or setting."""


class InvalidRequest(UserError):
    """A malformed or inconsistent request, or an unusable file."""

    code = "invalid_request"


class PayloadTooLarge(UserError):
    """The request's body is over the limit."""

    code = "payload_too_large"


class NotAuthenticated(UserError):
    """No key, or one that is unknown or revoked."""

    code = "invalid_api_key"


class Forbidden(UserError):
    """The key is good, its scope is not."""

    code = "insufficient_scope"


class NotFound(UserError):
    """No such thing, or it belongs to another key."""

    code = "not_found"


class ModelNotFound(NotFound):
    """`Model 'x' is not available`, with near names."""

    code = "model_not_found"


class Conflict(UserError):
    """It exists already, or is read-only here."""

    code = "conflict"


class RateLimited(UserError):
    """The key's own limit; `retry_after_s` says when to come back."""

    code = "rate_limit_exceeded"


class NotInstalled(UserError):
    """An optional part is missing; the message names the command that brings it."""

    code = "not_installed"


class NoCapacity(CoderAIError):
    """Nothing can take the request now; `retry_after_s` says when to come back."""

    code = "no_capacity"


class QueueFull(NoCapacity):
    """The model's waiting line is full."""

    code = "queue_full"


class ModelLoading(NoCapacity):
    """The model is still being loaded; the load goes on."""

    code = "model_loading"


class NoRoom(NoCapacity):
    """No card has the memory, and nothing idle can be unloaded."""

    code = "no_room"


class Nowhere(NoRoom):
    """There is no place for it, and none will come by itself; the message says what somebody would have to change."""


class Draining(NoCapacity):
    """The install is shutting down."""

    code = "draining"


class FlowsUnavailable(NoCapacity):
    """The Prefect child does not answer: it is starting, down, or switched off."""

    code = "flows_unavailable"


class RunCancelled(CoderAIError):
    """An operator or the run's owner cancelled it."""

    code = "run_cancelled"


class PayloadGone(UserError):
    """The request of a run is not kept (any more), so that it cannot be executed again; the message says why."""

    code = "payload_gone"


class EngineFailed(CoderAIError):
    """An engine did not give an answer: it died, refused, or broke off. The step may be tried elsewhere."""

    code = "engine_failed"


class ServiceDown(EngineFailed):
    """A configured `service_url` is not answering its health check."""

    code = "service_unavailable"


class LoadFailed(EngineFailed):
    """The engine process could not load the model; the message ends with the runtime's own words."""

    code = "model_load_failed"


class UpstreamRefused(CoderAIError):
    """The engine answered with a 4xx of its own: the client's fault as the engine sees it, passed on as it is."""

    def __init__(self, message: str, *, status: int, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param, code=code)
        self.status = status


class SettingsInvalid(UserError):
    """`coderai.toml` or an environment variable cannot be used; the message names the key."""

    code = "settings_invalid"


class DatabaseTooNew(CoderAIError):
    """The database was written by a newer version."""

    code = "database_too_new"


class DatabaseUnusable(CoderAIError):
    """The database is corrupt, is something else, or does not answer; the message names it and says what to do."""

    code = "database_unusable"


class DiskFull(CoderAIError):
    """A write could not be made whole for want of space; nothing was changed."""

    code = "disk_full"


class Bug(CoderAIError):
    """Our own mistake; the client sees no detail."""

    code = "internal_error"
