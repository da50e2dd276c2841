"""Errors that cross to another process: the same class, the same words, and nothing of what is not ours."""

import pytest

from infra import errors
from infra.downloads import DownloadFailed
from infra.errors import CoderAIError, EngineFailed, NoRoom, UpstreamRefused
from workers.refused import rebuilt, refusal
from workers.wire import LeaseRefused

CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CoderAIError) and kind is not UpstreamRefused
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_of_ours_arrives_as_it_left(kind: type[CoderAIError]) -> None:
    left = kind("say so", param="model", code="odd", retry_after_s=3.5)
    there = rebuilt(LeaseRefused.model_validate_json(refusal(left).model_dump_json()))
    assert type(there) is kind
    assert (there.message, there.param, there.code, there.retry_after_s) == ("say so", "model", "odd", 3.5)


def test_a_code_that_the_class_gives_is_kept() -> None:
    assert rebuilt(refusal(NoRoom("full"))).code == "no_room"


def test_a_class_of_another_module_arrives_as_its_nearest_base() -> None:
    assert issubclass(DownloadFailed, CoderAIError)
    there = rebuilt(refusal(DownloadFailed("broken off")))
    assert type(there) in DownloadFailed.__mro__
    assert there.message == "broken off"


def test_an_engine_s_own_refusal_is_an_engine_s_failure() -> None:
    assert type(rebuilt(refusal(UpstreamRefused("no", status=400)))) is EngineFailed


def test_what_is_not_ours_is_not_told() -> None:
    refused = refusal(ValueError("the secret"))
    assert "secret" not in refused.model_dump_json()
    assert type(rebuilt(refused)) is errors.Bug


@pytest.mark.parametrize("name", ["ValueError", "print", "__doc__", "", "CoderAIErrors", "UpstreamRefused"])
def test_only_our_own_classes_are_made(name: str) -> None:
    assert type(rebuilt(LeaseRefused(error=name, message="x"))) is EngineFailed
