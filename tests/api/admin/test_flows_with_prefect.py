"""The pages under /flows with Prefect's own server behind them."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from infra.prefect_address import PrefectAddress
from tests.api.admin.operators import HTML, Operator, operator
from tests.prefect_server import PrefectServer

pytestmark = pytest.mark.slow
RUN = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
async def real(tmp_path: Path, prefect_server: PrefectServer) -> AsyncIterator[Operator]:
    address = PrefectAddress(prefect_server.authorization, prefect_server.url)
    async with operator(tmp_path / "home", address) as running:
        await running.log_in()
        yield running


async def follow(site: Operator, path: str, **headers: str) -> str:
    """The page at the end of redirects, all of which stay on our host and below /flows."""
    for _ in range(4):
        answer = await site.get(path, site.browser(**HTML, **headers))
        if answer.status == 200:
            return answer.text
        assert answer.status == 307, answer
        path = answer.headers["Location"]
        assert path.startswith("/flows/")
    raise AssertionError(path)


@pytest.mark.parametrize(
    "path", ["/flows/", "/flows/v2", "/flows/v2/", f"/flows/runs/flow-run/{RUN}", f"/flows/v2/runs/flow-run/{RUN}"]
)
async def test_both_user_interfaces_load_with_all_they_name(real: Operator, path: str) -> None:
    page = await follow(real, path)
    assert '<div id="app">' in page or '<div id="root">' in page
    named = re.findall(r'(?:src|href)="(/flows/[^"]+\.(?:js|css|png))"', page)
    assert named
    for asset in named:
        answer = await real.get(asset, real.browser(Accept_Encoding="gzip"))
        assert answer.status == 200, asset
    assert re.findall(r"<script(?! type=\"module\")", page) == []


async def test_the_user_interface_is_told_that_it_needs_no_password(real: Operator) -> None:
    settings = json.loads((await real.get("/flows/ui-settings", real.browser(Accept_Encoding="gzip"))).body)
    assert settings["auth"] is None
    assert (settings["api_url"], settings["v1_base_url"]) == ("/flows/api", "/flows")


async def test_the_api_answers_and_tells_no_secret(real: Operator, prefect_server: PrefectServer) -> None:
    path = "/flows/api/deployments/filter"
    found = await real.ask("POST", path, real.browser(Content_Type="application/json"), b'{"limit": 10}')
    assert found.status == 200
    assert {"chat", "embeddings"} <= {row["name"] for row in json.loads(found.body)}
    settings = await real.get("/flows/api/admin/settings")
    assert settings.status == 200
    assert prefect_server.auth.partition(":")[2] not in settings.text
    assert prefect_server.internal_token not in settings.text
    assert (await real.get(f"/flows/api/flow_runs/{RUN}")).status == 404
    assert (await real.get("/flows/api/admin/version", {})).status == 401
    refused = await real.ask("POST", "/flows/api/coderai/record", real.bearer(), b'{"lines": []}')
    assert refused.status == 403


@pytest.mark.parametrize("asks_with_a_key", [False, True])
async def test_events_come_over_the_websocket(real: Operator, asks_with_a_key: bool) -> None:
    name = f"coderai.test.{uuid4()}"
    event = {
        "id": str(uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": name,
        "resource": {"prefect.resource.id": "coderai.test"},
        "payload": {},
    }
    wanted = {"type": "filter", "filter": {"event": {"name": [name]}}}
    headers, protocols = (real.bearer(), ("prefect",)) if asks_with_a_key else (real.browser(), ())
    url = real.url + "/flows/api/events/out"
    async with real.session.ws_connect(url, headers=headers, protocols=protocols) as socket:
        if asks_with_a_key:
            await socket.send_json({"type": "auth", "token": real.keys["admin"]})
            assert await socket.receive_json(timeout=20) == {"type": "auth_success"}
        await socket.send_json(wanted)
        async with asyncio.timeout(30):
            while True:  # the subscription begins a moment after the filter was sent
                body = json.dumps([event | {"id": str(uuid4())}]).encode()
                posted = await real.ask(
                    "POST", "/flows/api/events", real.browser(Content_Type="application/json"), body
                )
                assert posted.status in (204, 307), posted
                try:
                    heard = await socket.receive_json(timeout=1)
                    break
                except TimeoutError:
                    continue
    assert (heard["type"], heard["event"]["event"]) == ("event", name)
