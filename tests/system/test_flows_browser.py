"""The flow-run UI as a person sees it: a real browser, the real Prefect child, real requests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.system.conftest import MakeProduct
from tests.system.far import Far
from tests.system.flow_api import FlowApi
from tests.system.product import EMBED, Product, eventually

pytestmark = pytest.mark.browser

FAR: dict[str, object] = {"model": "far", "messages": [{"role": "user", "content": "Are you there?"}]}
RERANK: dict[str, object] = {"model": EMBED, "query": "cat", "documents": ["a dog", "a kitten"]}
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
MORE_QUIET = ("--disable-component-update", "--disable-sync", "--enable-unsafe-swiftshader")
SEEN_WITHIN_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine: apt install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=[*QUIET, *MORE_QUIET])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(make_product: MakeProduct, far: Far) -> Product:
    product = make_product(config=far.model, settings={"FLOWS__SERVER": "child"})
    product.start()
    product.load(EMBED)
    FlowApi(product).wait_until_up()
    return product


@pytest.fixture
def page(browser: Browser, served: Product, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    """A page of somebody who has not logged in; a failed test leaves a picture."""
    context = browser.new_context(base_url=served.url, viewport={"width": 1300, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(SEEN_WITHIN_MS)
    expect.set_options(timeout=SEEN_WITHIN_MS)
    yield opened
    opened.screenshot(path=tmp_path / "last.png")
    context.close()


def ask(served: Product, path: str, body: dict[str, object]) -> httpx2.Response:
    return served.post(path, body)


def log_in(page: Page, served: Product, path: str) -> None:
    """Follow a link without being logged in, log in with the admin key, and stand there."""
    page.goto(path)
    assert "/login" in page.url
    page.locator("input[type=password]").fill(served.key)
    page.locator("button[type=submit]").click()
    page.wait_for_url(lambda url: "/login" not in url)


def test_a_deep_link_leads_over_the_login_to_the_run_and_its_graph(page: Page, served: Product) -> None:
    run = ask(served, "/v1/rerank", RERANK).headers["x-coderai-run"]
    FlowApi(served).run(run, state="COMPLETED")
    with page.expect_response(lambda answer: "graph-v2" in answer.url) as graph:
        log_in(page, served, f"/flows/runs/flow-run/{run}")
    assert page.url.endswith(f"/flows/runs/flow-run/{run}")
    nodes = {node["label"] for _id, node in graph.value.json()["nodes"]}
    assert nodes == {"score", "rank"}
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_text("Completed").first).to_be_visible()
    page.get_by_text("Task Runs", exact=True).click()
    for step in ("score", "rank"):
        expect(page.get_by_text(step, exact=True).first).to_be_visible()


def test_a_wrong_key_does_not_open_the_door(page: Page, served: Product) -> None:
    page.goto("/flows/")
    page.locator("input[type=password]").fill("sk-coderai-wrong")
    page.locator("button[type=submit]").click()
    expect(page.locator("input[type=password]")).to_be_visible()
    assert "/login" in page.url
    assert page.context.cookies() == []


def test_a_failed_run_is_retried_with_a_click_and_completes(page: Page, served: Product, far: Far) -> None:
    far.broken = True
    try:
        run = ask(served, "/v1/chat/completions", FAR).headers["x-coderai-run"]
        FlowApi(served).run(run, state="FAILED")
    finally:
        far.broken = False
    log_in(page, served, f"/flows/runs/flow-run/{run}")
    expect(page.get_by_text("Failed").first).to_be_visible()
    page.get_by_role("button", name="Retry").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_text("Completed").first).to_be_visible()
    assert served.get(f"/v1/runs/{run}")["run_count"] == 2


def test_a_pool_that_is_paused_with_a_click_refuses_the_next_request(page: Page, served: Product) -> None:
    log_in(page, served, "/flows/work-pools/work-pool/cpu")
    switch = page.get_by_role("switch").or_(page.locator(".p-toggle__control")).first
    switch.click()
    try:
        refused = eventually(
            lambda: next((one for one in [ask(served, "/v1/rerank", RERANK)] if one.status_code == 503), None),
            10,
            what=lambda: "it is paused, and yet requests are answered",
        )
        assert refused is not None
        assert "paused in the flow-run UI" in refused.json()["error"]["message"]
    finally:
        switch.click()
    eventually(lambda: ask(served, "/v1/rerank", RERANK).status_code == 200, 10, what=lambda: "still paused")


def test_a_pool_s_limit_is_changed_in_its_form(page: Page, served: Product) -> None:
    log_in(page, served, "/flows/work-pools/work-pool/cpu/edit")
    page.get_by_placeholder("Unlimited").fill("3")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(lambda url: "/edit" not in url)
    pools = {pool["name"]: pool for pool in FlowApi(served).post("/work_pools/filter", {}).json()}
    assert pools["cpu"]["concurrency_limit"] == 3
