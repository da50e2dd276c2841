"""Errors as the typed exceptions of OpenAI's client."""

from collections.abc import Iterator

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.system.conftest import MakeProduct
from tests.system.product import CHAT, EMBED, Product, eventually

HELLO = [{"role": "user", "content": "Say hello."}]


def test_an_unknown_model(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="smollm2-135m-instruc", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "model_not_found"
    assert CHAT in caught.value.message, "near names are offered"


def test_an_unknown_model_is_not_shown(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_a_wrong_key(product: Product) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        product.client(key="sk-coderai-wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    assert "sk-coderai-wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": HELLO, "temperature": 3}, "temperature"),
        ({"messages": HELLO, "temperature": "warm"}, "temperature"),
        ({"messages": HELLO, "max_tokens": -1}, "max_tokens"),
        ({"messages": HELLO, "n": 0}, "n"),
        ({"messages": HELLO, "top_p": 2}, "top_p"),
        ({"messages": HELLO, "top_logprobs": 99, "logprobs": True}, "top_logprobs"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ],
)
def test_a_bad_request_names_the_field(client: OpenAI, body: dict[str, object], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body={"model": CHAT, **body}, cast_to=object)
    assert caught.value.param is not None
    assert caught.value.param.startswith(param.partition("[")[0]), caught.value.message
    assert caught.value.type == "invalid_request_error"


def test_no_model(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body={"messages": HELLO}, cast_to=object)
    assert caught.value.param == "model"


def test_a_model_that_does_something_else(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=CHAT, input="x")
    assert caught.value.param == "model"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=EMBED, messages=[{"role": "user", "content": "x"}])


def test_a_prompt_beyond_the_context(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=CHAT, messages=[{"role": "user", "content": "word " * 12000}])
    assert caught.value.code == "context_length_exceeded"


def test_what_is_no_json(product: Product) -> None:
    answer = httpx2.post(f"{product.url}/v1/chat/completions", content=b"{nope", headers=product.headers())
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_an_unknown_path(product: Product) -> None:
    answer = product.post("/v1/nonsense", {})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_url"


def test_a_users_key_does_not_open_the_operators_routes(product: Product) -> None:
    key = product.new_key("someone")
    answer = product.post("/admin/api/model-load", {"model": CHAT}, key=key)
    assert answer.status_code == 403
    product.told("tokens", "revoke", "someone")
    eventually(lambda: product.post("/v1/rerank", {}, key=key).status_code == 401, 2.5, what=lambda: "still works")


@pytest.fixture(scope="module")
def limited(make_product: MakeProduct) -> Iterator[Product]:
    """An install whose keys may ask twice a minute."""
    served = make_product(config="[auth]\nrequests_per_minute = 2\n")
    served.start()
    yield served
    assert served.stop() == 0


def test_over_the_limit(limited: Product) -> None:
    client = limited.client()
    for _ in range(2):
        client.embeddings.create(model=EMBED, input="x")
    with pytest.raises(openai.RateLimitError) as caught:
        client.embeddings.create(model=EMBED, input="x")
    assert caught.value.code == "rate_limit_exceeded"
    assert int(caught.value.response.headers["retry-after"]) >= 1
