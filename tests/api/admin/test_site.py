"""An operator's pages as a whole: who gets what, for people and for programs."""

import json
from pathlib import Path

import aiohttp
import pytest

from tests.api.admin.operators import ANSWERED, HTML, Operator, operator
from tests.api.conftest import StartFront

PAGES = ("/flows", "/flows/", "/flows/v2/runs", "/flows/ui-settings", "/flows/api/flow_runs/0f", "/admin", "/admin/x")


@pytest.mark.parametrize("path", PAGES)
async def test_nobody_else_gets_anywhere(admin: Operator, path: str) -> None:
    for scope in ("user", "node"):
        answer = await admin.get(path, admin.bearer(scope))
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "insufficient_scope")
        assert (await admin.get(path, admin.bearer(scope) | HTML)).status == 403
    for headers in ({}, {"Authorization": "Bearer sk-wrong"}, {"Authorization": "Basic YTpi"}):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            answer = await admin.ask(method, path, headers)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert admin.prefect.seen == []


async def test_people_are_sent_to_the_login_and_programs_told(admin: Operator) -> None:
    page = await admin.get("/flows/v2/runs?a=%26", HTML)
    assert (page.status, page.headers["Location"]) == (303, "/login?next=%2Fflows%2Fv2%2Fruns%3Fa%3D%2526")
    for path, method in (("/flows/api/flow_runs/0f", "GET"), ("/flows/", "POST")):
        answer = await admin.ask(method, path, HTML)
        assert answer.status == 401
        assert json.loads(answer.body)["error"]["code"] == "missing_api_key"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_forged_origin_gains_nothing(admin: Operator, method: str) -> None:
    for origin in ("http://evil.example", f"http://127.0.0.1:{admin.port + 1}", "null"):
        answer = await admin.ask(method, "/flows/api/flow_runs/filter", admin.browser(Origin=origin), b"{}")
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "foreign_origin")
    unproven = admin.browser()
    del unproven["Origin"]
    assert (await admin.ask(method, "/flows/api/flow_runs/filter", unproven, b"{}")).status == 403
    assert admin.prefect.seen == []


async def test_a_tampered_cookie_gains_nothing(admin: Operator) -> None:
    assert (await admin.get("/flows/", admin.browser())).status == 200
    admin.cookie = admin.cookie[:-1] + ("A" if admin.cookie[-1] != "A" else "B")
    assert (await admin.get("/flows/", admin.browser())).status == 401


async def test_a_revoked_key_ends_its_login(admin: Operator) -> None:
    assert (await admin.get("/flows/", admin.browser())).status == 200
    admin.revoke()
    assert (await admin.get("/flows/", admin.browser())).status == 401
    assert (await admin.get("/flows/", admin.bearer())).status == 401


async def test_short_addresses_lead_on(admin: Operator) -> None:
    for path in ("/flows", "/admin", "/admin/"):
        answer = await admin.get(path, admin.browser(**HTML))
        assert (answer.status, answer.headers["Location"]) == (303, "/flows/")
    missing = await admin.get("/admin/x", admin.browser(**HTML))
    assert missing.status == 404
    assert "flow runs are at /flows/" in missing.text
    assert (await admin.get("/login/x", admin.browser())).status == 404


async def test_icons_are_found_where_the_ui_looks_for_them(admin: Operator) -> None:
    for path, icon in (
        ("/ico/completed.svg", "completed.svg"),
        ("/completed.svg", "completed.svg"),
        ("/favicon.ico", "favicon.ico"),
        ("/ico/favicon-32x32.png", "favicon-32x32.png"),
    ):
        found = await admin.get(path, admin.browser(Accept="image/*"))
        assert (found.status, found.headers["Location"]) == (303, f"/flows/ico/{icon}")
        assert (await admin.get(path, {})).status == 401
    assert (await admin.get("/ico/../x.svg", admin.browser())).status == 404
    assert (await admin.get("/ico/x/y.svg", admin.browser())).status == 404


async def test_the_answer_of_a_run_is_shown_to_who_is_logged_in(admin: Operator) -> None:
    path = f"/admin/runs/{ANSWERED}/answer"
    assert (await admin.get(path, {})).status == 401
    shown = await admin.get(path, admin.browser())
    assert (shown.status, shown.body) == (200, b"for admin")
    for other in (path.replace("8", "9"), f"/admin/runs/{'.' * 36}/answer", f"{path}/x"):
        assert (await admin.get(other, admin.browser())).status == 404


async def test_without_a_flow_run_server_there_is_a_sentence(tmp_path: Path) -> None:
    async with operator(tmp_path / "home", None) as admin:
        page = await admin.get("/flows/", admin.bearer() | HTML)
        assert page.status == 404
        assert "switched off" in page.text
        answer = await admin.get("/flows/api/flow_runs/0f")
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (404, "not_found")
        assert (await admin.get("/flows/", {})).status == 401


async def test_our_own_fault_is_told_to_the_log_alone(admin: Operator, caplog: pytest.LogCaptureFixture) -> None:
    admin.address.authorization = "no\nheader"
    answer = await admin.get("/flows/", admin.bearer() | HTML)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (500, "internal_error")
    assert "GET /flows/ failed" in caplog.text


async def test_a_damaged_signing_key_says_what_to_do(tmp_path: Path) -> None:
    async with operator(tmp_path / "home") as admin:
        file = admin.settings.at("secrets", "session.key")
        file.parent.mkdir()
        file.write_bytes(b"short")
        answer = await admin.ask("POST", "/login", None, {"key": admin.keys["admin"]})
        assert answer.status == 500
        assert "delete it" in answer.text


async def test_the_front_has_these_pages_and_keeps_its_own_rules_for_the_others(start_front: StartFront) -> None:
    front = await start_front()
    assert (await front.get("/flows/", "user"))[0] == 403
    status, body = await front.get("/flows/", "admin")
    assert (status, body["error"]["code"]) == (404, "not_found")
    for path in ("/ico/running.svg", "/running.svg", "/favicon.ico"):
        async with front.session.get(front.url + path, headers=front.headers("admin"), allow_redirects=False) as icon:
            assert icon.status == 303
    async with front.session.get(front.url + "/login") as page:
        assert page.status == 200
    for path, status in (("/flows/api/events/out", 404), ("/v1/models", 403)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await front.session.ws_connect(front.url + path, headers=front.headers("admin"))
        assert caught.value.status == status
