"""Chat and completions through OpenAI's client, against real models."""

import json

import pytest
from openai import OpenAI, omit
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from tests.system.product import CHAT, CODER, Product

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
FRANCE: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the capital of France? Answer in one word."}
]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "get_time", "description": "Tells the time.", "parameters": {"type": "object"}},
}


def test_a_real_model_knows_paris(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=CODER, messages=FRANCE, temperature=0, max_tokens=20)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.object == "chat.completion"
    assert answer.model == CODER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_an_alias_is_as_good_as_the_name(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=HELLO, max_tokens=4)
    assert answer.choices[0].message.content


def test_every_answer_says_its_run_and_engine(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model=CHAT, messages=HELLO, max_tokens=2)
    assert len(raw.headers["x-coderai-run"]) == 36
    assert raw.headers["x-coderai-engine"].endswith(CHAT)
    assert raw.parse().choices


def test_a_stream_says_the_same_as_an_answer(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=CHAT, messages=HELLO, temperature=0, max_tokens=16, seed=1)
    stream = client.chat.completions.create(
        model=CHAT,
        messages=HELLO,
        temperature=0,
        max_tokens=16,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert [reason for reason in reasons if reason] == [whole.choices[0].finish_reason]


def test_a_stream_tells_no_usage_unless_asked(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=CHAT, messages=HELLO, max_tokens=4, stream=True))
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


def test_a_stop_word_ends_it_and_is_left_out(client: OpenAI) -> None:
    def ask(stop: list[str] | None) -> tuple[str, str]:
        answer = client.chat.completions.create(
            model=CHAT, messages=HELLO, temperature=0, max_tokens=24, stop=stop if stop else omit
        )
        return answer.choices[0].message.content or "", answer.choices[0].finish_reason

    whole, _reason = ask(None)
    word = whole.split()[3]
    assert ask([word, "never said"]) == (whole[: whole.index(word)], "stop")


def test_several_choices_of_one_prompt(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=CHAT, messages=HELLO, n=2, max_tokens=8, temperature=1.5, seed=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].message.content != answer.choices[1].message.content


def test_several_choices_as_a_stream(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=CHAT, messages=HELLO, n=2, max_tokens=6, stream=True)
    seen = {choice.index for chunk in stream for choice in chunk.choices}
    assert seen == {0, 1}


def test_a_seed_repeats(client: OpenAI) -> None:
    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(model=CHAT, messages=HELLO, seed=seed, temperature=1.2, max_tokens=24)
        return answer.choices[0].message.content

    assert ask(11) == ask(11)
    assert len({ask(11), ask(12), ask(13)}) > 1


def test_logprobs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=CHAT, messages=HELLO, logprobs=True, top_logprobs=3, max_tokens=4, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert answer.usage is not None
    assert len(logprobs.content) == answer.usage.completion_tokens
    for token in logprobs.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token, "at temperature 0 the likeliest is taken"
        assert token.bytes == list(token.token.encode())


def test_no_logprobs_unless_asked(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=CHAT, messages=HELLO, max_tokens=2)
    assert answer.choices[0].logprobs is None


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_longest_answer(client: OpenAI, field: str) -> None:
    answer = client.chat.completions.create(model=CHAT, messages=HELLO, extra_body={field: 3})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def test_json_mode(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "Describe a cat as JSON with the keys name and age."}
    ]
    answer = client.chat.completions.create(
        model=CODER, messages=messages, response_format={"type": "json_object"}, temperature=0, max_tokens=120
    )
    assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


class Cat(BaseModel):
    """What the model must fill in."""

    name: str
    age: int
    indoors: bool


def test_a_strict_schema_is_kept_even_by_a_tiny_model(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Invent a cat."}]
    answer = client.chat.completions.parse(
        model=CHAT, messages=messages, response_format=Cat, temperature=0, max_tokens=100
    )
    assert isinstance(answer.choices[0].message.parsed, Cat)


def test_tools_when_the_model_wants(client: OpenAI) -> None:
    """`auto` leaves the choice to the model: a call that parses, or plain words."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the weather in Rome?"}]
    answer = client.chat.completions.create(
        model=CODER, messages=messages, tools=[WEATHER], tool_choice="auto", temperature=0, max_tokens=80
    )
    message = answer.choices[0].message
    if message.tool_calls:
        assert answer.choices[0].finish_reason == "tool_calls"
    else:
        assert message.content


def test_a_required_tool_is_called(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the weather in Rome?"}]
    answer = client.chat.completions.create(
        model=CODER, messages=messages, tools=[WEATHER], tool_choice="required", temperature=0, max_tokens=80
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert calls[0].function.name == "get_weather"
    assert isinstance(json.loads(calls[0].function.arguments)["city"], str)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert calls[0].id


def test_a_named_tool_is_called_and_no_other(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What time is it?"}]
    answer = client.chat.completions.create(
        model=CODER,
        messages=messages,
        tools=[CLOCK, WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        temperature=0,
        max_tokens=80,
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.name for call in calls if call.type == "function"] == ["get_weather"]


def test_tools_that_may_not_be_called(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=CODER, messages=HELLO, tools=[WEATHER], tool_choice="none", temperature=0, max_tokens=20
    )
    assert not answer.choices[0].message.tool_calls
    assert answer.choices[0].message.content


def test_a_tools_answer_is_used(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "How many degrees are there in Rome now?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "31 degrees, sunny"},
    ]
    answer = client.chat.completions.create(
        model=CODER, messages=messages, tools=[WEATHER], tool_choice="none", temperature=0, max_tokens=60
    )
    assert "31" in (answer.choices[0].message.content or "")


def test_a_second_turn_remembers_the_first(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "My name is Zoltan. Remember it."},
        {"role": "assistant", "content": "I will, Zoltan."},
        {"role": "user", "content": "What is my name? Answer in one word."},
    ]
    answer = client.chat.completions.create(model=CODER, messages=messages, temperature=0, max_tokens=12)
    assert "Zoltan" in (answer.choices[0].message.content or "")


def test_text_that_came_in_parts(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]}
    ]
    assert client.chat.completions.create(model=CHAT, messages=messages, max_tokens=4).choices[0].message.content


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(model=CODER, prompt="The capital of France is", temperature=0, max_tokens=4)
    assert "Paris" in answer.choices[0].text
    assert answer.object == "text_completion"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


def test_completions_echo(client: OpenAI) -> None:
    answer = client.completions.create(model=CHAT, prompt="Once upon a time", echo=True, max_tokens=4)
    assert answer.choices[0].text.startswith("Once upon a time")


def test_completions_of_several_prompts(client: OpenAI) -> None:
    prompts = ["Once upon a time", "The quick brown fox", "def main():"]
    answer = client.completions.create(model=CHAT, prompt=prompts, max_tokens=4, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    alone = client.completions.create(model=CHAT, prompt=prompts[2], max_tokens=4, temperature=0)
    assert answer.choices[2].text == alone.choices[0].text


def test_completions_logprobs(client: OpenAI) -> None:
    answer = client.completions.create(model=CHAT, prompt="One two three", logprobs=2, max_tokens=3, temperature=0)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert len(logprobs.tokens) == 3
    assert logprobs.token_logprobs is not None
    assert all(value is not None and value <= 0 for value in logprobs.token_logprobs)
    assert logprobs.top_logprobs is not None
    assert all(len(tops) >= 2 for tops in logprobs.top_logprobs)
    assert "".join(logprobs.tokens) == answer.choices[0].text


def test_completions_as_a_stream(client: OpenAI) -> None:
    whole = client.completions.create(model=CHAT, prompt="Once upon a time", max_tokens=8, temperature=0)
    stream = client.completions.create(model=CHAT, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == whole.choices[0].text


def test_models(client: OpenAI, product: Product) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert set(listed) >= {CHAT, CODER, "all-minilm-l6-v2"}
    one = client.models.retrieve(CHAT)
    assert one.id == CHAT
    assert one.object == "model"
    assert product.get(f"/v1/models/{CHAT}")["capabilities"] == ["chat", "completions"]
