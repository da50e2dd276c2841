"""Images over HTTP from a pipeline of random weights: what comes is what diffusers draws when it is called directly."""

import base64
import io
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIError
from PIL import Image

from tests.pictures import encoded, gradient, left_half, pixels
from tests.system.conftest import MakeProduct
from tests.system.drawing import ASK, MODEL, PROMPT, SEED, STEPS, Direct, decoded, good, row
from tests.system.product import Product, eventually
from tests.tiny_diffusers import FORGIVEN, write_tiny_sd15

pytestmark = [
    pytest.mark.timeout(300),  # two processes import torch, which takes each of them up to a minute
    *(pytest.mark.filterwarnings(warning) for warning in FORGIVEN),
]

CARD = '[[cards.engine_specs]]\nname = "{name}"\nbackend = "cpu"\nmemory_mib = 6144\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_sd15(tmp_path_factory.mktemp("pipelines") / "sd15")


@pytest.fixture(scope="module")
def served(make_product: MakeProduct, folder: Path) -> Iterator[Product]:
    """Two cards, of which one has the model."""
    product = make_product(settings={"LLAMA__THREADS": "1", "MODELS__PACKAGED": "false"})
    cards = "".join(CARD.format(name=name) for name in ("cpu-a", "cpu-b"))
    product.home.joinpath("coderai.toml").write_text(cards + row(folder))
    product.start()
    good(product.post("/v1/images/generations", ASK | {"n": 1, "steps": 1}, timeout_s=100))
    yield product
    assert product.stop() == 0


@pytest.fixture(scope="module")
def direct(folder: Path) -> Direct:
    """The same pipelines in this process."""
    return Direct(folder)


def test_openai_s_client_gets_what_diffusers_draws(served: Product, direct: Direct) -> None:
    answer = served.client().images.generate(
        model=MODEL,
        prompt=PROMPT,
        n=3,
        size="64x64",
        response_format="b64_json",
        extra_body={"seed": SEED, "steps": STEPS},
    )
    assert answer.data is not None
    assert [decoded(item) for item in answer.data] == [direct.text(SEED + index) for index in range(3)]
    assert [item.model_extra for item in answer.data] == [{"seed": SEED + index} for index in range(3)]


def test_a_file_has_an_address_that_needs_no_key(served: Product, direct: Direct) -> None:
    body = good(served.post("/v1/images/generations", ASK | {"seed": SEED, "steps": STEPS}))
    (item,) = body["data"]
    assert item["url"].startswith(f"{served.url}/v1/files/image-")
    fetched = httpx2.get(item["url"], timeout=10)
    assert (fetched.status_code, fetched.headers["content-type"]) == (200, "image/png")
    assert pixels(fetched.content) == direct.text(SEED)
    bare = item["url"].partition("?")[0]
    assert httpx2.get(bare, timeout=10).status_code == 401
    assert httpx2.get(bare, headers=served.headers(), timeout=10).content == fetched.content
    other = served.headers(served.new_key("other"))
    assert httpx2.get(bare, headers=other, timeout=10).status_code == 404
    again = good(served.post("/v1/images/generations", ASK | {"seed": SEED, "steps": STEPS}))
    assert again["data"][0]["url"].partition("?")[0] == bare  # the same bytes are not kept twice


def test_other_forms_of_the_file(served: Product) -> None:
    for form, kind in (("jpeg", "JPEG"), ("webp", "WEBP")):
        asked = ASK | {"steps": 1, "output_format": form, "output_compression": 70, "response_format": "b64_json"}
        (item,) = good(served.post("/v1/images/generations", asked))["data"]
        image = Image.open(io.BytesIO(base64.b64decode(item["b64_json"])))
        assert (image.format, image.size) == (kind, (64, 64))


def test_an_edit_within_a_mask(served: Product, direct: Direct) -> None:
    mask = Image.new("RGBA", (64, 64), "black")
    mask.paste((0, 0, 0, 0), (0, 0, 32, 64))
    answer = served.client().images.edit(
        model=MODEL,
        image=("in.png", encoded(gradient())),
        mask=("mask.png", encoded(mask)),
        prompt=PROMPT,
        response_format="b64_json",
        extra_body={"seed": str(SEED), "steps": str(STEPS), "strength": "0.8"},
    )
    assert answer.data is not None
    assert decoded(answer.data[0]) == direct.masked(SEED, gradient(), left_half(), strength=0.8)


def test_a_stream_ends_with_what_is_drawn_without_one(served: Product, direct: Direct) -> None:
    stream = served.client().images.generate(
        model=MODEL,
        prompt=PROMPT,
        n=2,
        size="64x64",
        stream=True,
        partial_images=2,
        extra_body={"seed": SEED, "steps": STEPS},
    )
    events = list(stream)
    kinds = ["partial_image", "partial_image", "completed"] * 2
    assert [event.type for event in events] == [f"image_generation.{kind}" for kind in kinds]
    assert {event.size for event in events} == {"64x64"}
    finished = [event for event in events if event.type == "image_generation.completed"]
    assert [decoded(event) for event in finished] == [direct.text(SEED + index) for index in range(2)]
    assert len({decoded(event) for event in events}) == 6


def test_a_stream_of_an_edit(served: Product, direct: Direct) -> None:
    stream = served.client().images.edit(
        model=MODEL,
        image=("in.png", encoded(gradient())),
        mask=("mask.png", encoded(left_half())),
        prompt=PROMPT,
        stream=True,
        extra_body={"seed": str(SEED), "steps": str(STEPS), "strength": "0.8"},
    )
    (event,) = stream
    assert event.type == "image_edit.completed"
    assert decoded(event) == direct.masked(SEED, gradient(), left_half(), strength=0.8)


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
def test_variations_of_an_image(served: Product, direct: Direct) -> None:
    answer = served.client().images.create_variation(
        model=MODEL,
        image=("in.png", encoded(gradient())),
        n=2,
        response_format="b64_json",
        extra_body={"seed": str(SEED), "steps": str(STEPS)},
    )
    assert answer.data is not None
    assert [decoded(item) for item in answer.data] == [direct.varied(SEED + index, gradient()) for index in range(2)]


def test_an_engine_is_killed_in_a_stream_and_a_client_leaves_one(served: Product) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "size": "64x64", "n": 10, "stream": True}
    asked |= {"partial_images": 3, "extra_body": {"seed": SEED, "steps": 25}}
    stream = served.client().images.generate(**asked)
    next(iter(stream))
    os.kill(served.engine_pid(MODEL), signal.SIGKILL)
    with pytest.raises(APIError, match="broke off its answer"):
        list(stream)
    stream = served.client().images.generate(**asked)
    next(iter(stream))
    assert served.engines()[MODEL]["in_flight"] == 1
    stream.close()
    eventually(lambda: not served.engines()[MODEL]["in_flight"], 5, what=lambda: served.log)
    good(served.post("/v1/images/generations", ASK | {"steps": 1}))


def test_an_engine_is_killed_in_the_middle(served: Product) -> None:
    """Every image is there, in order, and the same."""
    asked = ASK | {"n": 10, "seed": SEED, "steps": 25, "response_format": "b64_json"}
    whole = good(served.post("/v1/images/generations", asked, timeout_s=100))
    engines = [each for each in served.get("/admin/api/engines")["engines"] if each["model"] == MODEL]
    assert len(engines) == 1
    got: list[Any] = []
    asking = threading.Thread(
        target=lambda: got.append(good(served.post("/v1/images/generations", asked, timeout_s=100)))
    )
    asking.start()
    eventually(lambda: served.engines()[MODEL]["in_flight"], 20, what=lambda: served.log, pause_s=0.005)
    os.kill(served.engine_pid(MODEL), signal.SIGKILL)
    asking.join(100)
    assert got, served.log
    assert [decoded(item) for item in got[0]["data"]] == [decoded(item) for item in whole["data"]]
