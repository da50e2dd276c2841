"""Recordings as flow runs: recorded by reference, executed as jobs, retried from what is kept."""

from pathlib import Path

import httpx2
import pytest

from tests.system.conftest import MakeProduct
from tests.system.engines import busy, two_cards
from tests.system.flow_api import FlowApi
from tests.system.product import Product, eventually
from tests.system.retries import fail_the_other_parts, kept_steps, kill_busy, retried
from tests.system.speech import RECORDING, word_error_rate
from workers.packaged.catalogue import model_named, served_path

WHISPER = "whisper-base"
SOUND = RECORDING.read_bytes()
SPREAD = (
    '[[model]]\nname = "spread"\npath = "{path}"\nformat = "whisper"\ncapabilities = ["stt"]\nmax_instances = 2\n'
    "distribute = {{ min_items = 2, chunk_seconds = 15 }}\n"
)


@pytest.fixture(scope="module")
def served(make_product: MakeProduct) -> Product:
    """Two cards by hand, and beside the packaged model one that is spread over both."""
    product = make_product(settings={"FLOWS__SERVER": "child", "LLAMA__THREADS": "1"})
    path = served_path(model_named(WHISPER), product.home)
    two_cards(product, SPREAD.format(path=path))
    product.load(WHISPER)
    FlowApi(product).wait_until_up()
    return product


@pytest.fixture
def flows(served: Product) -> FlowApi:
    return FlowApi(served)


def post(served: Product, model: str = WHISPER, **headers: str) -> httpx2.Response:
    return httpx2.post(
        f"{served.url}/v1/audio/transcriptions",
        data={"model": model, "response_format": "text", "language": "en"},
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


@pytest.mark.timeout(300)  # engines are killed, and come back
def test_a_retry_hears_only_the_parts_that_had_not_succeeded(served: Product) -> None:
    run = post(served, "spread", **{"X-Coderai-Lane": "job"}).json()["id"]
    eventually(lambda: len(busy(served, "spread")) == 2, 60, what=lambda: served.log[-3000:], pause_s=0.02)
    kill_busy(served, "spread", only="cpu-b")
    done = fail_the_other_parts(served, run, "spread")
    assert done in ({"split", "part-1"}, {"split", "part-2"})
    states = retried(served, run)
    assert set(states) == {"split", "part-1", "part-2", "merge", "write"}
    assert {name for name, seen in states.items() if "Kept" in seen} == done
    assert word_error_rate(answer_of(served, run).text) <= 0.15
    assert not kept_steps(served, run)
