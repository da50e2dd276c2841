"""Every error has its status and OpenAI's shape; what is nobody's business is told to nobody."""

import importlib
from collections.abc import Iterator

import pytest

from infra import errors
from infra.downloads import DownloadFailed, WrongFile
from infra.error_object import error_object, status_of
from tests.repo.tree import modules

STATUS: dict[type[errors.CoderAIError], int] = {
    errors.CoderAIError: 500,
    errors.UserError: 400,
    errors.InvalidRequest: 400,
    errors.PayloadTooLarge: 413,
    errors.NotAuthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.ModelNotFound: 404,
    errors.Conflict: 409,
    errors.RunCancelled: 409,
    errors.PayloadGone: 410,
    errors.FlowsUnavailable: 503,
    errors.RateLimited: 429,
    errors.NotInstalled: 501,
    errors.SettingsInvalid: 500,
    errors.NoCapacity: 503,
    errors.QueueFull: 503,
    errors.ModelLoading: 503,
    errors.NoRoom: 503,
    errors.Nowhere: 503,
    errors.Draining: 503,
    errors.EngineFailed: 502,
    errors.ServiceDown: 502,
    errors.LoadFailed: 503,
    errors.UpstreamRefused: 422,
    errors.DatabaseTooNew: 503,
    errors.DatabaseUnusable: 503,
    errors.DiskFull: 507,
    errors.Bug: 500,
    DownloadFailed: 502,
    WrongFile: 502,
}
"""What a client gets for each class; a class that is not here has the status of its nearest base."""


def every(kind: type[errors.CoderAIError]) -> Iterator[type[errors.CoderAIError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from every(below)


def all_errors() -> list[type[errors.CoderAIError]]:
    for module in modules():
        if "Error)" in module.text or "Failed)" in module.text or "Request)" in module.text:
            importlib.import_module(module.path.removesuffix(".py").replace("/", "."))
    return sorted(set(every(errors.CoderAIError)), key=lambda kind: kind.__name__)


def make(kind: type[errors.CoderAIError]) -> errors.CoderAIError:
    if issubclass(kind, errors.UpstreamRefused):
        return kind("a sentence", status=422)
    return kind("a sentence")


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_a_status_and_openai_s_shape(kind: type[errors.CoderAIError]) -> None:
    error = make(kind)
    expected = next(STATUS[base] for base in kind.__mro__ if base in STATUS)
    assert status_of(error) == expected
    shape = error_object(error)
    assert set(shape) == {"message", "type", "param", "code"}
    assert shape["type"] == {4: "invalid_request_error", 5: "server_error"}[expected // 100] or expected == 429
    if kind is not errors.CoderAIError and kind is not errors.UserError and kind is not errors.UpstreamRefused:
        assert shape["code"]


def test_every_class_of_the_tree_is_in_the_table() -> None:
    """A new error comes with a decision about its status."""
    named = {kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__}
    assert named - set(STATUS) == set()


def test_a_rate_limit_is_of_its_own_type() -> None:
    assert error_object(errors.RateLimited("slow"))["type"] == "rate_limit_error"


def test_message_param_and_code_are_passed_on() -> None:
    error = errors.UpstreamRefused("no such voice", status=418, param="voice", code="teapot")
    assert status_of(error) == 418
    assert error_object(error) == {
        "message": "no such voice",
        "type": "invalid_request_error",
        "param": "voice",
        "code": "teapot",
    }


@pytest.mark.parametrize("error", [KeyError("a secret"), errors.Bug("a secret"), RuntimeError("a secret")])
def test_our_own_mistakes_tell_no_detail(error: Exception) -> None:
    assert status_of(error) == 500
    assert "secret" not in str(error_object(error))
    assert error_object(error)["code"] == "internal_error"
