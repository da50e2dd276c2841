"""Recordings as flow runs: recorded by reference, executed as jobs, retried from what is kept."""

from pathlib import Path

import httpx2
import pytest

from tests.system.conftest import MakeProduct
from tests.system.flow_api import FlowApi
from tests.system.product import Product, eventually
from tests.system.speech import RECORDING, word_error_rate

WHISPER = "whisper-base"
SOUND = RECORDING.read_bytes()


@pytest.fixture(scope="module")
def served(make_product: MakeProduct) -> Product:
    product = make_product(settings={"FLOWS__SERVER": "child"})
    product.start()
    product.load(WHISPER)
    FlowApi(product).wait_until_up()
    return product


@pytest.fixture
def flows(served: Product) -> FlowApi:
    return FlowApi(served)


def post(served: Product, **headers: str) -> httpx2.Response:
    return httpx2.post(
        f"{served.url}/v1/audio/transcriptions",
        data={"model": WHISPER, "response_format": "text", "language": "en"},
        files={"file": ("ten.ogg", SOUND, "audio/ogg")},
        headers=served.headers() | headers,
        timeout=60,
    )


def answer_of(served: Product, run: str) -> httpx2.Response:
    return httpx2.get(f"{served.url}/v1/runs/{run}/answer", headers=served.headers(), timeout=10)


def kept(served: Product, folder: str) -> list[Path]:
    return [path for path in (served.home / folder).rglob("*") if path.is_file() and path.read_bytes() == SOUND]


def test_a_recording_is_kept_by_reference_and_can_be_heard_again(served: Product, flows: FlowApi) -> None:
    answer = post(served)
    assert answer.status_code == 200, answer.text
    run = answer.headers["x-coderai-run"]
    shown = flows.run(run, state="COMPLETED")
    request = shown["parameters"]["request"]
    assert request["file"]["bytes"] == len(SOUND)
    assert len(str(request)) < 1000
    assert len(kept(served, "payloads")) == 1
    flows.require_tasks(run, "transcribe", "write")
    flows.retry(run)
    heard = eventually(
        lambda: found if (found := answer_of(served, run)).status_code == 200 else None,
        60,
        what=lambda: str(flows.run(run)["state"]),
    )
    assert heard is not None
    assert heard.text == answer.text
    assert heard.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_recording_as_a_job(served: Product, flows: FlowApi) -> None:
    taken = post(served, **{"X-Coderai-Lane": "job"})
    assert taken.status_code == 202, taken.text
    run = taken.json()["id"]
    flows.run(run, state="COMPLETED", within_s=60)
    assert word_error_rate(answer_of(served, run).text) <= 0.15
    assert len(kept(served, "jobs")) == 1
