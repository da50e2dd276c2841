"""What a batch has used, from answers of every shape."""

import pytest

from infra.batch_usage import BatchUsage, Spent
from infra.types import Json

CHAT: Json = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
RESPONSE: Json = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 8,
}
EMBEDDINGS: Json = {"prompt_tokens": 1, "total_tokens": 1}


def answer(usage: Json, model: Json = "m") -> Json:
    return {"response": {"status_code": 200, "body": {"model": model, "usage": usage}}, "error": None}


def test_the_shapes_of_usage_are_added_up() -> None:
    spent = Spent()
    for usage in (CHAT, RESPONSE, EMBEDDINGS):
        spent.add(answer(usage))
    assert spent.model == "m"
    assert spent.usage.model_dump() == {
        "input_tokens": 13,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 18,
    }


@pytest.mark.parametrize(
    "result", [None, {}, {"response": None, "error": {"code": "x"}}, answer(None, None), answer({"prompt_tokens": "7"})]
)
def test_what_tells_no_usage_adds_nothing(result: Json) -> None:
    spent = Spent()
    spent.add(result)
    assert spent.usage == BatchUsage()


def test_the_first_model_is_the_batch_s() -> None:
    spent = Spent()
    spent.add(answer(CHAT, "first"))
    spent.add(answer(CHAT, "second"))
    assert spent.model == "first"
