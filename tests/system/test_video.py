"""Videos over HTTP through the real engine process with a tiny Wan pipeline: files, seeds, progress, cancellation."""

import base64
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import imageio_ffmpeg
import pytest

from tests.documents import drawn, encoded
from tests.system.conftest import end
from tests.system.flow_api import FlowApi
from tests.system.product import Product, eventually
from tests.tiny_wan import write_tiny_wan

WAN = "tiny-wan"
SHORT: dict[str, Any] = {
    "model": WAN,
    "prompt": "a cat walks over the grass",
    "size": "48x32",
    "num_frames": 9,
    "fps": 12,
    "steps": 2,
    "seed": 11,
    "response_format": "b64_mp4",
}
LONG = SHORT | {"steps": 200, "size": "64x64", "num_frames": 17}
ENDLESS = {"size": "160x160", "num_frames": 81}
"""Longer than any test looks at it: it is cancelled."""
PATH = "/v1/video/generations"
PROGRESS = "/v1/video/progress"


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """An install of its own, with flow runs."""
    folder = write_tiny_wan(tmp_path_factory.mktemp("wan") / WAN)
    config = f'[[model]]\nname = "{WAN}"\npath = "{folder}"\n'
    settings = {"MODELS__PACKAGED": "false", "FLOWS__SERVER": "child"}
    served = Product(tmp_path_factory.mktemp("video") / "home", config=config, settings=settings)
    try:
        served.start()
        served.load(WAN)
        yield served
    finally:
        end(served)


def made(product: Product, body: dict[str, Any]) -> dict[str, Any]:
    answer = product.post(PATH, body, timeout_s=100)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def videos(answer: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(one["b64_mp4"]) for one in answer["data"]]


def watched(product: Product, body: dict[str, Any]) -> tuple[httpx2.Response, list[dict[str, Any]]]:
    """The answer, and what the progress was meanwhile."""
    seen = []
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(product.post, PATH, body, timeout_s=100)
        while not asking.done():
            seen.append(product.get(PROGRESS))
            time.sleep(0.2)
        return asking.result(), seen


def test_a_video_in_the_answer_and_by_its_address(product: Product, tmp_path: Path) -> None:
    answer = made(product, SHORT)
    (video,) = videos(answer)
    (path := tmp_path / "a.mp4").write_bytes(video)
    assert imageio_ffmpeg.count_frames_and_secs(path) == (9, 0.75)
    assert (answer["num_frames"], answer["fps"], answer["data"][0]["seed"]) == (9, 12, 11)
    (shown,) = made(product, SHORT | {"response_format": "url"})["data"]
    fetched = httpx2.get(shown["url"], timeout=10)  # the address is signed: it needs no key
    assert (fetched.status_code, fetched.headers["content-type"]) == (200, "video/mp4")
    assert fetched.content == video
    assert httpx2.get(shown["url"].replace("signature=", "signature=x"), timeout=10).status_code == 403


def test_several_are_what_each_seed_gives_alone(product: Product) -> None:
    both = made(product, SHORT | {"n": 2})
    assert [one["seed"] for one in both["data"]] == [11, 12]
    assert videos(both) == [*videos(made(product, SHORT)), *videos(made(product, SHORT | {"seed": 12}))]
    assert videos(both)[0] != videos(both)[1]


def test_without_a_seed_one_is_drawn_and_told(product: Product) -> None:
    body = {name: value for name, value in SHORT.items() if name != "seed"}
    first, second = made(product, body), made(product, body)
    assert videos(first) != videos(second)
    assert videos(made(product, body | {"seed": first["data"][0]["seed"]})) == videos(first)


def test_the_progress_of_all_its_videos(product: Product) -> None:
    assert product.get(PROGRESS) == {
        "active": False,
        "phase": "idle",
        "model": None,
        "current": 0,
        "total": 0,
        "pct": 0.0,
        "it_per_s": 0.0,
        "elapsed": 0.0,
        "runs": [],
    }
    answer, seen = watched(product, LONG | {"n": 2})
    assert answer.status_code == 200, answer.text
    known = [look for look in seen if look["active"] and look["total"]]
    assert {look["total"] for look in known} == {400}
    assert {look["model"] for look in known} == {WAN}
    currents = [look["current"] for look in known]
    assert currents == sorted(currents)
    assert any(0 < current < 200 for current in currents)
    assert any(200 < current < 400 for current in currents)
    running = next(look for look in known if look["phase"] == "denoising")
    (run,) = running["runs"]
    assert run["run"] == answer.headers["x-coderai-run"]
    assert [step["step"] for step in run["steps"]] in (["video-1"], ["video-2"])
    assert max(look["it_per_s"] for look in known) > 0


def test_a_key_sees_its_own_progress_and_its_run(product: Product) -> None:
    keys = [product.new_key(name) for name in ("ann", "ben")]
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(product.post, PATH, LONG | ENDLESS, key=keys[0], timeout_s=100)
        look = eventually(
            lambda: found if (found := product.get(PROGRESS, key=keys[0]))["current"] else None,
            60,
            what=lambda: str(product.get(PROGRESS)),
        )
        assert look is not None
        assert product.get(PROGRESS, key=keys[1])["active"] is False
        run = look["runs"][0]["run"]
        progress = product.get(f"/v1/runs/{run}", key=keys[0])["progress"]
        assert (progress["total"], progress["phase"]) == (200, "denoising")
        assert "denoising: " in product.told("runs", "show", run)
        assert product.post(f"/v1/runs/{run}/cancel", {}, key=keys[0]).status_code == 202
        assert asking.result().status_code == 409
    assert product.get(f"/v1/runs/{run}", key=keys[0])["progress"] is None
    assert httpx2.get(f"{product.url}{PROGRESS}", timeout=10).status_code == 401


def test_a_cancelled_run_frees_its_engine(product: Product) -> None:
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(product.post, PATH, LONG | ENDLESS, timeout_s=100)
        look = eventually(
            lambda: found if (found := product.get(PROGRESS))["current"] else None, 60, what=lambda: product.log
        )
        assert look is not None
        cancelled = product.post(f"/v1/runs/{look['runs'][0]['run']}/cancel", {})
        assert cancelled.status_code == 202, cancelled.text
        began = time.monotonic()
        made(product, SHORT)
        assert time.monotonic() - began < 20
        answer = asking.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "run_cancelled")
    assert product.get(PROGRESS)["active"] is False


def test_a_job_has_its_progress_on_its_run(product: Product) -> None:
    flows = FlowApi(product)
    flows.wait_until_up()
    body = LONG | {"n": 2, "response_format": "url"}
    run = flows.job(PATH, body)
    progress = eventually(
        lambda: found if (found := product.get(f"/v1/runs/{run}")["progress"]) and found["current"] else None,
        60,
        what=lambda: str(product.get(f"/v1/runs/{run}")),
    )
    assert progress is not None
    assert progress["total"] == 400
    assert product.get(PROGRESS)["runs"][0]["run"] == run
    flows.run(run, state="COMPLETED", within_s=100)
    found = flows.post(
        "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}, "type": {"any_": ["progress"]}}}
    )
    (bar,) = found.json()
    assert bar["data"] == 100.0
    first, second = product.get(f"/v1/runs/{run}/answer")["data"]
    for one, seed in ((first, 11), (second, 12)):
        assert one["seed"] == seed
        assert httpx2.get(f"{product.url}{one['url'].removeprefix(product.url)}", timeout=10).content[4:8] == b"ftyp"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": 10_000}, "n"),
    ({"prompt": ""}, "prompt"),
    ({"num_frames": 10}, "num_frames"),
    ({"num_frames": 245}, "num_frames"),
    ({"size": "50x32"}, "size"),
    ({"size": "4096x4096"}, "size"),
    ({"size": "2048x2048"}, "size"),
    ({"size": None, "width": 32}, "height"),
    ({"steps": 0}, "steps"),
    ({"steps": 100_000}, "steps"),
    ({"fps": 0}, "fps"),
    ({"seed": -1}, "seed"),
    ({"response_format": "gif"}, "response_format"),
    ({"mode": "i2v"}, "image"),
    ({"mode": "v2v"}, "mode"),
    ({"image": "bm90IGFuIGltYWdl"}, "image"),
    ({"image": "http://127.0.0.1:1/a.png"}, "image"),
    ({"loras": ["nobody"]}, "loras"),
    ({"guidance_scale_3": 1}, "guidance_scale_3"),
]


def test_what_is_wrong_is_named_and_no_engine_dies(product: Product) -> None:
    pid = product.engine_pid(WAN)
    for fields, param in BAD:
        answer = product.post(PATH, SHORT | fields)
        assert 400 <= answer.status_code < 500, answer.text
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert str(error["param"]).startswith(param), answer.text
    assert product.engine_pid(WAN) == pid


def test_an_image_for_a_model_of_texts_alone(product: Product) -> None:
    image = encoded(drawn().resize((48, 32)))
    in_json = product.post(PATH, SHORT | {"image": base64.b64encode(image).decode()})
    fields = {name: str(value) for name, value in SHORT.items()}
    as_form = httpx2.post(
        f"{product.url}{PATH}",
        data=fields,
        files={"image": ("a.png", image, "image/png")},
        headers=product.headers(),
        timeout=60,
    )
    for answer in (in_json, as_form):
        assert answer.status_code == 400, answer.text
        assert "from a text alone" in answer.json()["error"]["message"]


def test_a_form_without_an_image_is_a_text(product: Product) -> None:
    fields = {name: (None, str(value)) for name, value in SHORT.items()}
    answer = httpx2.post(f"{product.url}{PATH}", files=fields, headers=product.headers(), timeout=60)
    assert answer.status_code == 200, answer.text
    assert videos(answer.json()) == videos(made(product, SHORT))
