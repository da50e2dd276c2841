"""OpenAI's shapes of files: what a form may say, and what is shown."""

import pytest

from api.openai.file_shapes import ExpiresAfter, checked_filename, checked_purpose, expiry_of, lasts_s
from infra.errors import InvalidRequest

HOUR = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}


def test_purposes() -> None:
    assert checked_purpose("evals") == "evals"
    for wrong in (None, "", "batch_output", "generated"):
        with pytest.raises(InvalidRequest) as caught:
            checked_purpose(wrong)
        assert caught.value.param == "purpose"


@pytest.mark.parametrize(
    "change",
    [
        {"expires_after[anchor]": "now"},
        {"expires_after[seconds]": "3599"},
        {"expires_after[seconds]": "2592001"},
        {"expires_after[seconds]": "x"},
    ],
)
def test_expiry_in_a_form(change: dict[str, str]) -> None:
    assert expiry_of({}) is None
    assert expiry_of(HOUR) == ExpiresAfter(anchor="created_at", seconds=3600)
    with pytest.raises(InvalidRequest):
        expiry_of(HOUR | change)
    with pytest.raises(InvalidRequest):
        expiry_of({"expires_after[seconds]": "3600"})


def test_how_long_a_file_lasts() -> None:
    assert lasts_s("batch", None) == 30 * 86_400
    assert lasts_s("vision", None) is None
    assert lasts_s("batch", ExpiresAfter(anchor="created_at", seconds=3600)) == 3600


def test_a_name_is_needed() -> None:
    with pytest.raises(InvalidRequest):
        checked_filename(None)
