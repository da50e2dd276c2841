"""Responses through OpenAI's client, against real models."""

import json
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from pydantic import BaseModel

from tests.system.product import CHAT, CODER, Product

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Answer(BaseModel):
    """What a structured answer holds."""

    city: str
    country: str


def test_a_real_model_knows_paris(client: OpenAI) -> None:
    response = client.responses.create(
        model=CODER,
        instructions="Answer in one word.",
        input="What is the capital of France?",
        temperature=0,
        max_output_tokens=20,
    )
    assert "Paris" in response.output_text
    assert (response.status, response.model) == ("completed", CODER)
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert client.responses.retrieve(response.id) == response


def test_a_stream_says_the_same(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": CHAT, "input": "Say hello.", "temperature": 0, "max_output_tokens": 16}
    whole = client.responses.create(**asked)
    events = list(client.responses.create(stream=True, **asked))
    response = events[-1].response
    assert response.output_text == whole.output_text
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert response.usage is not None
    assert response.usage.output_tokens == whole.usage.output_tokens
    assert (response.status, whole.status) == ("incomplete", "incomplete")


def test_two_turns_by_the_previous_response(client: OpenAI) -> None:
    first = client.responses.create(model=CODER, input="My name is Ada Lovelace.", temperature=0, max_output_tokens=40)
    second = client.responses.create(
        model=CODER,
        input="What is my name? Answer with the name only.",
        previous_response_id=first.id,
        temperature=0,
        max_output_tokens=20,
    )
    assert "Ada" in second.output_text
    client.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        client.responses.create(model=CODER, input="And now?", previous_response_id=second.id)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_forced_call_and_what_comes_of_it(client: OpenAI, *, streamed: bool) -> None:
    asked: dict[str, Any] = {
        "model": CODER,
        "input": "What is the weather in Rome?",
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "temperature": 0,
    }
    if streamed:
        with client.responses.stream(**asked) as stream:
            response = stream.get_final_response()
    else:
        response = client.responses.create(**asked)
    (call,) = response.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert call.name == "get_weather"
    assert json.loads(call.arguments)["city"]
    after = client.responses.create(
        model=CODER,
        instructions="Tell in one sentence what the tool found.",
        input=[
            {"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "sunny"}'},
            {"role": "user", "content": "So how is the sky?"},
        ],
        previous_response_id=response.id,
        temperature=0,
        max_output_tokens=60,
    )
    assert "sunny" in after.output_text.lower()


def test_a_structured_answer(client: OpenAI) -> None:
    response = client.responses.parse(
        model=CODER, input="Which city is the capital of Italy?", text_format=Answer, temperature=0
    )
    assert response.output_parsed is not None
    assert response.output_parsed.city


def test_logprobs(client: OpenAI) -> None:
    response = client.responses.create(
        model=CHAT,
        input="Say hello.",
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        max_output_tokens=4,
        temperature=0,
    )
    part = response.output[0].content[0]  # type: ignore[union-attr,index]
    assert response.usage is not None
    assert len(part.logprobs) == response.usage.output_tokens  # type: ignore[union-attr,arg-type]


def test_a_conversation_that_is_too_long(client: OpenAI) -> None:
    flood = "word " * 9000
    turns: Any = [
        {"role": "user", "content": flood},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "Say hello."},
    ]
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=CHAT, input=turns, max_output_tokens=4)
    assert refused.value.code == "context_length_exceeded"
    response = client.responses.create(model=CHAT, input=turns, max_output_tokens=4, truncation="auto")
    assert response.output_text


def test_responses_are_their_keys_own_and_outlive_the_front(product: Product, client: OpenAI) -> None:
    response = client.responses.create(model=CHAT, input="Say hello.", max_output_tokens=4)
    other = product.client(key=product.new_key("stranger"))
    with pytest.raises(NotFoundError):
        other.responses.retrieve(response.id)
    assert client.responses.input_items.list(response.id).data[0].type == "message"
