"""What is wrong with a field, in a sentence that says what is wanted."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.wording import sentence


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=3)
    size: int = Field(8, ge=8, multiple_of=8)
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "'name' is required"),
        ({"name": 5}, "'name' must be a string"),
        ({"name": ""}, "'name' must not be empty"),
        ({"name": "long"}, "'name' is longer than the 3 characters that are allowed"),
        ({"name": "x", "size": "much"}, "'size' must be an integer"),
        ({"name": "x", "size": 0}, "'size' must be at least 8"),
        ({"name": "x", "size": 12}, "'size' must be a multiple of 8"),
        ({"name": "x", "kind": "c"}, "'kind' must be 'a' or 'b'"),
        ({"name": "x", "more": 1}, "'more' is nothing that is known here: leave it out"),
    ],
)
def test_what_is_wanted_is_said(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Order.model_validate(given)
    (detail,) = caught.value.errors()
    assert sentence(str(detail["loc"][0]), detail) == said
