"""Vectors come out of their package as they went in."""

import base64
import json
from array import array

import pytest

from infra.errors import EngineFailed
from infra.types import Json
from tasks.vectors import as_given, as_lists, pack

VECTORS: list[Json] = [[0.1, -2.5e-7, 3], [1 / 3, 0.0, 1e300]]
TEXTS: list[Json] = [base64.b64encode(array("f", numbers).tobytes()).decode() for numbers in ([0.5, 2.0], [0.1, -1.0])]


def test_numbers_keep_every_bit() -> None:
    packed = json.loads(json.dumps(pack(VECTORS)))
    assert set(packed) == {"packed", "dimensions"}
    assert list(as_given(packed)) == list(as_lists(packed)) == VECTORS


def test_base64_stays_as_it_is_and_is_read_as_floats() -> None:
    packed = pack(TEXTS)
    assert list(as_given(packed)) == TEXTS
    assert list(as_lists(packed)) == [[0.5, 2.0], array("f", [0.1, -1.0]).tolist()]


@pytest.mark.parametrize("odd", [[[1.0], [1.0, 2.0]], [[[1.0]], [[2.0]]], [[1.0], TEXTS[0]]], ids=str)
def test_what_is_of_no_one_length_is_not_packed(odd: list[Json]) -> None:
    packed = pack(odd)
    assert set(packed) == {"lists"}
    assert list(as_given(packed)) == odd


@pytest.mark.parametrize("text", ["no base64!", base64.b64encode(b"abc").decode()])
def test_what_is_no_base64_of_floats(text: str) -> None:
    with pytest.raises(EngineFailed, match="that should be base64 is none"):
        list(as_lists(pack([text])))
