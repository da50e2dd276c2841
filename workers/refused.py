"""Errors on their way to another process of this install: what was raised there is raised here."""

from infra import errors
from infra.errors import Bug, CoderAIError, EngineFailed, UpstreamRefused
from workers.wire import LeaseRefused


def refusal(error: BaseException) -> LeaseRefused:
    """An error as it crosses the wire. What is not ours is told to nobody but the log."""
    if not isinstance(error, CoderAIError):
        return LeaseRefused(error=Bug.__name__, message="the front made a mistake; its log has the details")
    return LeaseRefused(
        error=_known(type(error)).__name__,
        message=error.message,
        param=error.param,
        code=error.code,
        retry_after_s=error.retry_after_s,
    )


def rebuilt(refused: LeaseRefused) -> CoderAIError:
    """The error that the other side raised: of the same class, or of its nearest base that both sides know."""
    kind = getattr(errors, refused.error, None)
    if not isinstance(kind, type) or not issubclass(kind, CoderAIError) or issubclass(kind, UpstreamRefused):
        kind = EngineFailed
    return kind(refused.message, param=refused.param, code=refused.code, retry_after_s=refused.retry_after_s)


def _known(kind: type[CoderAIError]) -> type[CoderAIError]:
    """The class, or its nearest base, that stands in `infra.errors`."""
    return next(base for base in kind.__mro__ if base.__module__ == errors.__name__ and issubclass(base, CoderAIError))
