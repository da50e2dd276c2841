"""Speech as flow runs, executed as jobs; and an install without piper, which says how to get it."""

from pathlib import Path

import httpx2
import pytest

from tests.system.conftest import MakeProduct, end
from tests.system.flow_api import FlowApi
from tests.system.product import Product, eventually
from tests.system.retries import fail_the_other_parts, kept_steps, retried
from tests.system.speech import TEXT
from workers.engine.piper.install import COMMAND, piper_folder
from workers.packaged.catalogue import model_named, served_path

VOICE = "piper-en-us-joe"
ALONE = '[[model]]\nname = "alone"\npath = "{path}"\nformat = "piper"\ncapabilities = ["tts"]\nmax_instances = 1\n'


@pytest.fixture(scope="module")
def served(make_product: MakeProduct) -> Product:
    """With a model beside the packaged one that says one part after the other."""
    product = make_product(settings={"FLOWS__SERVER": "child"})
    path = served_path(model_named(VOICE), product.home)
    product.home.joinpath("coderai.toml").write_text(ALONE.format(path=path))
    product.start()
    product.load(VOICE)
    FlowApi(product).wait_until_up()
    return product


def post(served: Product, text: str, *, job: bool = False, **fields: object) -> httpx2.Response:
    body = {"model": VOICE, "input": text, "voice": "alloy", "response_format": "wav"} | fields
    lane = {"X-Coderai-Lane": "job"} if job else {}
    return httpx2.post(f"{served.url}/v1/audio/speech", json=body, headers=served.headers() | lane, timeout=60)


def answer_of(served: Product, run: str) -> httpx2.Response:
    return httpx2.get(f"{served.url}/v1/runs/{run}/answer", headers=served.headers(), timeout=10)


def test_a_job_is_the_same_sound(served: Product) -> None:
    flows = FlowApi(served)
    now = post(served, "Hello there. How are you?")
    taken = post(served, "Hello there. How are you?", job=True)
    assert taken.status_code == 202, taken.text
    run = taken.json()["id"]
    flows.run(run, state="COMPLETED", within_s=60)
    answer = answer_of(served, run)
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.content == now.content
    refused = post(served, "Hello.", job=True, stream_format="sse")
    assert refused.status_code == 400


def test_a_run_can_be_spoken_again(served: Product) -> None:
    flows = FlowApi(served)
    first = post(served, "Once more, with feeling.", response_format="mp3", stream_format="audio")
    run = first.headers["x-coderai-run"]
    flows.run(run, state="COMPLETED")
    flows.retry(run)
    again = eventually(
        lambda: found if (found := answer_of(served, run)).status_code == 200 else None,
        60,
        what=lambda: str(flows.run(run)["state"]),
    )
    assert again is not None
    assert again.content == first.content


def test_without_piper_the_command_is_named_and_helps(make_product: MakeProduct, tmp_path: Path) -> None:
    served = make_product()
    served.environment["XDG_CACHE_HOME"] = str(tmp_path)
    served.start()
    answer = post(served, "Hello.")
    assert answer.status_code == 501, answer.text
    assert COMMAND in answer.json()["error"]["message"]
    missing = piper_folder(tmp_path / "coderai")
    missing.parent.mkdir(parents=True)
    missing.symlink_to(piper_folder())
    spoken = eventually(
        lambda: found if (found := post(served, "Hello.")).status_code == 200 else None,
        30,
        what=lambda: served.log,
        pause_s=0.5,
    )
    assert spoken is not None
    assert spoken.content.startswith(b"RIFF")
    end(served)


@pytest.mark.timeout(300)  # engines are killed, and come back
def test_a_retry_says_only_the_parts_that_had_not_succeeded(served: Product) -> None:
    text = f"{TEXT} " * 7
    whole = post(served, text, model="alone", speed=4)
    assert whole.status_code == 200, whole.text
    run = post(served, text, job=True, model="alone", speed=4).json()["id"]
    done = fail_the_other_parts(served, run, "alone")
    assert done in ({"part-1"}, {"part-2"})
    states = retried(served, run)
    assert set(states) == {"part-1", "part-2", "merge"}
    assert {name for name, seen in states.items() if "Kept" in seen} == done
    assert answer_of(served, run).content == whole.content
    assert not kept_steps(served, run)
