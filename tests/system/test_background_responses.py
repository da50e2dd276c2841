"""Responses in the background are told while they are made, whatever happens to whoever makes them or follows them."""

import itertools
import os
import signal
from collections.abc import Iterable, Iterator
from typing import Any

import httpx2
import pytest
from openai import APIError, OpenAI

from tests.system.conftest import MakeProduct
from tests.system.flow_api import FlowApi
from tests.system.product import CHAT, Product, eventually

ASKED: dict[str, Any] = {
    "model": CHAT,
    "input": "Tell a long story.",
    "max_output_tokens": 600,
    "extra_body": {"ignore_eos": True},
    "background": True,
    "stream": True,
}
pytestmark = pytest.mark.timeout(300)
DELTA, TOLD_ANEW = "response.output_text.delta", "response.in_progress"


@pytest.fixture(scope="module")
def served(make_product: MakeProduct) -> Product:
    product = make_product(settings={"FLOWS__SERVER": "child"})
    product.start()
    product.load(CHAT)
    FlowApi(product).wait_until_up()
    return product


@pytest.fixture
def client(served: Product) -> Iterator[OpenAI]:
    with served.client(timeout_s=100) as made:
        yield made


def begun(events: Iterator[Any], deltas: int) -> list[Any]:
    """Events up to so many pieces of text."""
    heard: list[Any] = []
    while sum(event.type == DELTA for event in heard) < deltas:
        heard.append(next(events))
    return heard


def text(events: Iterable[Any]) -> str:
    return "".join(event.delta for event in events if event.type == DELTA)


def idle(served: Product) -> bool:
    return not any(engine["in_flight"] for engine in served.engines().values())


def written_tokens(served: Product) -> float:
    """What the install has counted of the model's tokens."""
    answer = httpx2.get(f"{served.url}/metrics", headers=served.headers(), timeout=10).text
    lines = [line for line in answer.splitlines() if line.startswith("coderai_tokens_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if CHAT in line and '"completion"' in line)


def test_its_text_comes_while_it_is_made_and_after_a_lost_connection(served: Product, client: OpenAI) -> None:
    before = written_tokens(served)
    stream = client.responses.create(**ASKED)
    heard = begun(stream, 5)
    made = heard[0].response.id
    assert client.responses.retrieve(made).status == "in_progress"
    stream.close()
    middle = client.responses.retrieve(made, stream=True, starting_after=heard[-1].sequence_number)
    heard += begun(middle, 5)
    middle.close()
    assert client.responses.retrieve(made).status == "in_progress", "a piece of text is there long before the last one"
    heard += list(client.responses.retrieve(made, stream=True, starting_after=heard[-1].sequence_number))
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
    done = client.responses.retrieve(made)
    assert (done.status, text(heard)) == ("incomplete", done.output_text)
    assert (heard[-1].type, heard[-1].response) == ("response.incomplete", done)
    assert sum(event.type == DELTA for event in heard) > 100
    assert list(client.responses.retrieve(made, stream=True)) == heard
    assert list(client.responses.retrieve(made, stream=True, starting_after=50)) == heard[51:]
    assert done.usage is not None
    assert done.usage.output_tokens == 600
    eventually(lambda: written_tokens(served) == before + 600, 20, what=lambda: f"{before}, {written_tokens(served)}")


def test_several_who_follow_hear_the_same(client: OpenAI) -> None:
    stream = client.responses.create(**ASKED)
    heard = begun(stream, 1)
    other = client.responses.retrieve(heard[0].response.id, stream=True)
    for event in itertools.islice(other, len(heard)):
        assert event.type == heard[event.sequence_number].type
    assert list(other) == list(stream)


def test_it_is_cancelled_while_it_is_told(served: Product, client: OpenAI) -> None:
    stream = client.responses.create(**ASKED | {"max_output_tokens": 3000})
    heard = begun(stream, 3)
    made = heard[0].response.id
    assert client.responses.cancel(made).status == "cancelled"
    heard += list(stream)
    assert (heard[-1].type, heard[-1].response) == ("response.failed", client.responses.retrieve(made))
    eventually(lambda: idle(served), 20, what=lambda: str(served.engines()))
    assert list(client.responses.retrieve(made, stream=True)) == heard, "though its job had more to tell"


def test_it_is_deleted_while_it_is_told(served: Product, client: OpenAI) -> None:
    stream = client.responses.create(**ASKED | {"max_output_tokens": 3000})
    made = begun(stream, 3)[0].response.id
    client.responses.delete(made)
    last = list(stream)[-1]
    if last.type == "error":
        assert last.message == f"Response with id '{made}' not found."
    else:
        assert last.response.status == "cancelled", "it is ended before it is deleted"
    eventually(lambda: idle(served), 20, what=lambda: str(served.engines()))
    assert not list((served.home / "responses").glob(f"*{made}*"))


def test_chaos_the_worker_dies_and_it_is_told_anew(served: Product, client: OpenAI) -> None:
    stream = client.responses.create(**ASKED)
    heard = begun(stream, 5)
    os.kill(served.pid_of("api.worker"), signal.SIGKILL)
    heard += list(stream)
    done = client.responses.retrieve(heard[0].response.id)
    assert (heard[-1].type, heard[-1].response) == ("response.incomplete", done)
    (again,) = [place for place, event in enumerate(heard) if event.type == TOLD_ANEW and place > 3]
    assert (heard[again - 1].type, heard[again - 1].item.status) == ("response.output_item.done", "incomplete")
    assert text(heard[again:]) == done.output_text
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
    assert list(client.responses.retrieve(done.id, stream=True)) == heard
    with client.responses.stream(response_id=done.id) as understood:
        understood.until_done()


def test_chaos_the_front_dies_and_nothing_is_missed(served: Product, client: OpenAI) -> None:
    stream = client.responses.create(**ASKED)
    heard = begun(stream, 5)
    made = heard[0].response.id
    os.kill(served.front_pid(), signal.SIGKILL)
    with pytest.raises((httpx2.HTTPError, APIError)):
        heard += list(stream)
    eventually(served.healthy, 60, what=lambda: served.log[-3000:])
    heard += list(client.responses.retrieve(made, stream=True, starting_after=heard[-1].sequence_number))
    done = client.responses.retrieve(made)
    assert (heard[-1].response, text(heard)) == (done, done.output_text)
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
