"""Images as flow runs: made as jobs, one step an image, and kept as files of whoever asked for them."""

from pathlib import Path

import httpx2
import pytest

from tests.pictures import pixels
from tests.system.conftest import MakeProduct
from tests.system.drawing import ASK, SEED, STEPS, Direct, good, row
from tests.system.flow_api import FlowApi
from tests.system.product import Product
from tests.tiny_diffusers import FORGIVEN, write_tiny_sd15

pytestmark = [
    pytest.mark.timeout(300),  # two processes import torch, which takes each of them up to a minute
    *(pytest.mark.filterwarnings(warning) for warning in FORGIVEN),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_sd15(tmp_path_factory.mktemp("pipelines") / "sd15")


@pytest.fixture(scope="module")
def served(make_product: MakeProduct, folder: Path) -> Product:
    product = make_product(settings={"LLAMA__THREADS": "1", "FLOWS__SERVER": "child", "MODELS__PACKAGED": "false"})
    product.home.joinpath("coderai.toml").write_text(row(folder))
    product.start()
    FlowApi(product).wait_until_up()
    return product


def answer_of(served: Product, run: str) -> httpx2.Response:
    return httpx2.get(f"{served.url}/v1/runs/{run}/answer", headers=served.headers(), timeout=10)


def test_a_job_keeps_its_images(served: Product, folder: Path) -> None:
    body = ASK | {"n": 2, "seed": SEED, "steps": STEPS}
    flows = FlowApi(served)
    run = flows.job("/v1/images/generations", body)
    flows.run(run, state="COMPLETED", within_s=100)
    flows.require_tasks(run, "split", "part-1", "part-2", "merge")
    answers = [good(answer_of(served, run)) for _ in range(2)]
    urls = [[item["url"].partition("?")[0] for item in answer["data"]] for answer in answers]
    assert urls[0] == urls[1]
    direct = Direct(folder)
    for index, item in enumerate(answers[0]["data"]):
        assert pixels(httpx2.get(item["url"], timeout=10).content) == direct.text(SEED + index)
