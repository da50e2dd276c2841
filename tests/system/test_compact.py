"""Long conversations made shorter through OpenAI's client, by a real model that goes on from its own summary."""

from typing import Any, cast

import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import ResponseCompactionItem

from tests.system.product import CODER, Product

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
"""OpenAI's client types an output's messages as the assistant's; those of a compaction are the user's."""

TURNS: list[dict[str, str]] = [
    {"role": "user", "content": "We write a tool that backs up photos. What should the command be called?"},
    {
        "role": "assistant",
        "content": "Call it otterly: it is short and free. The settings go in otterly.toml.",
    },
    {"role": "user", "content": "Good. Which port should its page listen on?"},
    {"role": "assistant", "content": "Port 7425: it is free on most machines."},
    {"role": "user", "content": "Agreed. Is HTTPS needed for that?"},
]
PORT = {"role": "user", "content": "Which port was chosen? Answer with the number alone."}


def answer(client: OpenAI, items: list[Any]) -> str:
    made = client.responses.create(model=CODER, input=items, temperature=0, max_output_tokens=20, store=False)
    return made.output_text


@pytest.mark.timeout(600)  # a small model may find no end before its limit
def test_what_the_assistant_said_survives_in_the_summary_alone(product: Product) -> None:
    client, said = product.client(timeout_s=250), cast(Any, TURNS)
    first = client.responses.create(model=CODER, input=said, temperature=0, max_output_tokens=40)
    compacted = client.responses.compact(model=CODER, previous_response_id=first.id)
    *messages, summary = compacted.output
    texts = [part["text"] for message in messages for part in message.to_dict()["content"]]  # type: ignore[attr-defined]
    assert texts == [turn["content"] for turn in TURNS if turn["role"] == "user"]
    assert isinstance(summary, ResponseCompactionItem)
    assert compacted.usage.output_tokens > 0
    assert compacted.usage.input_tokens > client.responses.input_tokens.count(model=CODER, input=said).input_tokens
    assert "7425" in answer(client, [*compacted.output, PORT])
    assert "7425" not in answer(client, [*messages, PORT])
    again = client.responses.compact(model=CODER, input=[*compacted.output, PORT])  # type: ignore[list-item]
    assert [item.type for item in again.output] == ["message"] * 4 + ["compaction"]


@pytest.mark.timeout(300)
def test_what_was_sealed_for_one_key_opens_for_no_other(product: Product) -> None:
    sealed = product.client(timeout_s=250).responses.compact(model=CODER, input=cast(Any, TURNS)).output[-1]
    stranger = product.client(key=product.new_key("compacting-stranger"))
    with pytest.raises(BadRequestError) as refused:
        stranger.responses.create(model=CODER, input=[sealed, PORT])  # type: ignore[list-item]
    assert (refused.value.param, refused.value.code) == ("input.0.encrypted_content", "invalid_encrypted_content")
