"""What an embeddings request may hold."""

import pytest

from api.openai.schemas import embeddings
from api.openai.schemas.shared import Body, View
from infra.errors import InvalidRequest
from infra.types import Json


@pytest.mark.parametrize(("given", "inputs"), [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2)])
def test_every_form_of_input_is_taken(given: Json, inputs: int) -> None:
    body: Body = {"model": "m", "input": given, "dimensions": 1, "encoding_format": "float", "user": "u"}
    assert embeddings.check(body) == View("m", choices=inputs, user="u")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": ["a", ""]}, "input.1"),
        ({"input": ["a", [1]]}, "input.1"),
        ({"input": [1, -1]}, "input.1"),
        ({"input": ["a"] * 2049}, "input"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": "5"}, "dimensions"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"model": None}, "model"),
        ({"dimension": 5}, "dimension"),
    ],
)
def test_what_is_wrong_is_named(fields: Body, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        embeddings.check({"model": "m", "input": "a", **fields})
    assert caught.value.param == param
