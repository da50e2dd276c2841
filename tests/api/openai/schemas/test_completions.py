"""What a completions request may hold."""

import pytest

from api.openai.schemas import completions
from api.openai.schemas.shared import Body, View
from infra.errors import InvalidRequest
from infra.types import Json

EVERY_FIELD: Body = {
    "model": "gpt-3.5-turbo-instruct",
    "prompt": "This is a test.",
    "best_of": 0,
    "echo": True,
    "frequency_penalty": -2,
    "logit_bias": {"foo": 0},
    "logprobs": 0,
    "max_tokens": 16,
    "n": 1,
    "presence_penalty": -2,
    "seed": 0,
    "stop": "\n",
    "stream": False,
    "stream_options": {"include_obfuscation": True, "include_usage": True},
    "suffix": "test.",
    "temperature": 1,
    "top_p": 1,
    "user": "user-1234",
}


def test_every_field_of_the_typed_client_is_taken() -> None:
    view = completions.check(EVERY_FIELD)
    assert view == View("gpt-3.5-turbo-instruct", include_usage=True, max_tokens=16, user="user-1234")


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [("a", 2), ("", 2), (["a", "b"], 4), ([1, 2, 3], 2), ([[1, 2], [3]], 4)],
)
def test_every_form_of_a_prompt_is_taken(prompt: Json, choices: int) -> None:
    assert completions.check({"model": "m", "prompt": prompt, "n": 2}) == View("m", choices=choices, max_tokens=16)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt.0"),
        ({"prompt": ["a", 1]}, "prompt.1"),
        ({"prompt": [-1]}, "prompt.0"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"echo": True, "prompt": [1]}, "echo"),
        ({"prompt": ["a"] * 100, "n": 2, "max_tokens": 10_000}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_is_wrong_is_named(fields: Body, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        completions.check({"model": "m", "prompt": "a", **fields})
    assert caught.value.param == param


def test_the_prompt_is_required() -> None:
    with pytest.raises(InvalidRequest, match="'prompt' is required"):
        completions.check({"model": "m"})


def test_best_of_n_means_nothing_more() -> None:
    assert completions.check({"model": "m", "prompt": "a", "n": 3, "best_of": 3}).choices == 3


def test_openings() -> None:
    assert completions.opening({"prompt": "a" * 5000}) == "a" * 1000
    assert completions.opening({"prompt": ["x", "y"]}) == "x"
    assert completions.opening({"prompt": [[1, 2]]}) == "[1, 2]"
    assert completions.opening({"prompt": [1, 2]}) == "[1, 2]"
