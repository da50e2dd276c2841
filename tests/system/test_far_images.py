"""Images of a far service as flow runs: made as a job by the worker process, and kept by this install."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from aiohttp.test_utils import TestServer

from tests.far_service import GENERATED, KEY, OPENAI, PICTURE, FarService
from tests.system.conftest import MakeProduct
from tests.system.flow_api import FlowApi

pytestmark = pytest.mark.timeout(180)
BODY = {"model": "painter", "prompt": "a fox", "n": 2, "seed": 7}


@contextmanager
def running(far: FarService) -> Iterator[str]:
    """The service on a loop of its own, for a product that is not on the test's; its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = TestServer(far.app(), host="127.0.0.1")
    try:
        asyncio.run_coroutine_threadsafe(server.start_server(), loop).result(20)
        yield str(server.make_url("/"))
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def row(url: str) -> str:
    return (
        f'[[model]]\nname = "painter"\nservice_url = "{url}"\nserved_model = "dall-e-3"\napi_key = "{KEY}"\n'
        'capabilities = ["images"]\n'
    )


def test_a_job_keeps_its_images(make_product: MakeProduct) -> None:
    far = FarService()
    far.takes = OPENAI | {"seed"}
    with running(far) as url:
        product = make_product(settings={"FLOWS__SERVER": "child", "MODELS__PACKAGED": "false"})
        product.home.joinpath("coderai.toml").write_text(row(url))
        product.start()
        flows = FlowApi(product)
        flows.wait_until_up()
        run = flows.job(GENERATED, BODY)
        flows.run(run, state="COMPLETED", within_s=60)
        flows.require_tasks(run, "split", "part-1", "part-2", "merge")
        answer = httpx2.get(f"{product.url}/v1/runs/{run}/answer", headers=product.headers(), timeout=10).json()
        assert [item["seed"] for item in answer["data"]] == [7, 8]
        assert [httpx2.get(item["url"], timeout=10).content for item in answer["data"]] == [PICTURE] * 2
        assert sorted(body["seed"] for body in far.asked) == [7, 8]
        assert {(body["model"], body["response_format"]) for body in far.asked} == {("dall-e-3", "b64_json")}
