"""Adapters of a whole install: added by hand, drawn with at once and as a job, recorded by reference, gone again."""

import base64
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.system.conftest import MakeProduct
from tests.system.drawing import ASK, PROMPT, SEED, STEPS, decoded, good, row
from tests.system.flow_api import FlowApi
from tests.system.product import Product
from tests.tiny_diffusers import FORGIVEN, write_tiny_sd15
from tests.tiny_loras import write_lora

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),  # two processes import torch, which takes each of them up to a minute
    *(pytest.mark.filterwarnings(warning) for warning in FORGIVEN),
]
PATH = "/v1/images/generations"
WANTED = ASK | {"seed": SEED, "steps": STEPS, "response_format": "b64_json"}
STYLED = WANTED | {"loras": [{"id": "name:style", "weight": 0.7}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_sd15(tmp_path_factory.mktemp("pipelines") / "sd15")


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lora(opened(folder), tmp_path_factory.mktemp("adapters") / "style.safetensors")


@pytest.fixture(scope="module")
def served(make_product: MakeProduct, folder: Path, adapter: Path) -> Product:
    product = make_product(settings={"LLAMA__THREADS": "1", "FLOWS__SERVER": "child", "MODELS__PACKAGED": "false"})
    product.home.joinpath("coderai.toml").write_text(row(folder))
    product.told("loras", "add", "style", str(adapter))
    product.start()
    FlowApi(product).wait_until_up()
    return product


def opened(folder: Path) -> Any:
    import torch
    from diffusers import StableDiffusionPipeline

    torch.set_num_threads(1)
    pipe = StableDiffusionPipeline.from_pretrained(folder, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def direct(folder: Path, adapter: Path, weight: float) -> bytes:
    """What diffusers itself draws with the adapter."""
    import torch

    pipe = opened(folder)
    pipe.load_lora_weights(adapter.parent, weight_name=adapter.name, adapter_name="style")
    pipe.set_adapters(["style"], [weight])
    generator = torch.Generator("cpu").manual_seed(SEED)
    drawn = pipe(prompt=PROMPT, num_inference_steps=STEPS, generator=generator, width=64, height=64)
    return bytes(drawn.images[0].tobytes())


def posted(served: Product, body: object) -> httpx2.Response:
    return served.post(PATH, body, timeout_s=100)


def only(body: Any) -> bytes:
    (item,) = body["data"]
    return decoded(item)


def test_an_adapter_s_whole_way(served: Product, folder: Path, adapter: Path) -> None:
    flows = FlowApi(served)
    plain = only(good(posted(served, WANTED)))
    answer = posted(served, STYLED)
    styled = only(good(answer))
    assert styled == direct(folder, adapter, 0.7)
    assert styled != plain
    assert only(good(posted(served, WANTED))) == plain
    (listed,) = served.get("/v1/loras")["data"]
    recorded = flows.run(answer.headers["x-coderai-run"], state="COMPLETED")["parameters"]["request"]
    assert recorded["loras"] == [{"blob": listed["id"], "weight": 0.7, "name": "style"}]
    run = flows.job(PATH, STYLED)
    served.told("loras", "remove", "style")  # what the job needs stays with it
    flows.run(run, state="COMPLETED", within_s=100)
    kept = httpx2.get(f"{served.url}/v1/runs/{run}/answer", headers=served.headers(), timeout=10)
    assert only(good(kept)) == styled
    refused = posted(served, STYLED)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "lora_not_found")
    text = base64.b64encode(adapter.read_bytes()).decode()
    again = good(posted(served, WANTED | {"loras": [{"data": text, "weight": 0.7}]}))
    assert only(again) == styled
