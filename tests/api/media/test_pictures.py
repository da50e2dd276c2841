"""The pictures of a request fit each other; other faults of theirs are told in test_images."""

import pytest

from api.media.pictures import check_pictures
from infra.errors import InvalidRequest
from tests.pictures import encoded, gradient, left_half

IMAGE = encoded(gradient())


def test_pictures_of_one_size() -> None:
    check_pictures({"image": IMAGE, "mask": encoded(left_half(), "WEBP")})
    check_pictures({})


def test_a_mask_of_another_size() -> None:
    with pytest.raises(InvalidRequest, match="they must be alike") as refused:
        check_pictures({"image": IMAGE, "mask": encoded(left_half(32, 32))})
    assert refused.value.param == "mask"
