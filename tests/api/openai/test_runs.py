"""`/v1/runs`: what each key sees of its runs, and what it may do with them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from infra.blobs import Blobs
from infra.prefect_address import PrefectAddress
from infra.prefect_api import PrefectApi
from infra.requests import blob_parameter, gone
from infra.run_files import RunFiles
from infra.types import KeyName
from tasks.made import FILES_TYPE, files_answer
from tasks.responses.compact import SUMMARY_TYPE
from tests.api.beside_prefect import CHAT, PATH, Flows, beside_prefect
from tests.api.conftest import StartFront
from tests.fakes_prefect_api import FakePrefect
from tests.infra.prefect_child.records import one_step
from tests.prefect_server import PrefectServer

Row = dict[str, Any]


@pytest.fixture
async def flows(start_front: StartFront) -> AsyncIterator[Flows]:
    async with beside_prefect(start_front) as both:
        yield both


async def listed(flows: Flows, query: str = "", scope: str = "user") -> list[str]:
    status, body = await flows.front.get(f"/v1/runs{query}", scope)
    assert status == 200, body
    assert [body["first_id"], body["last_id"]] == (
        [body["data"][0]["id"], body["data"][-1]["id"]] if body["data"] else [None, None]
    )
    return [run["id"] for run in body["data"]]


async def shown(flows: Flows, run: str, scope: str = "user") -> Any:
    status, body = await flows.front.get(f"/v1/runs/{run}", scope)
    assert status == 200, body
    return body


async def refused(flows: Flows, run: str, action: str, scope: str = "user") -> tuple[int, Any]:
    status, body = await flows.front.post(f"/v1/runs/{run}/{action}", {}, scope)
    return status, body["error"]


def keep_answer(flows: Flows, run: str, body: bytes = b'{"a": 1}', media_type: str = "application/json") -> None:
    RunFiles(flows.front.settings.home).keep_answer(run, body, media_type)


async def test_a_recorded_run(flows: Flows) -> None:
    row = flows.prefect.add_run("rerank", "FAILED", message="no room")
    split = flows.prefect.add_task(row, "scores")
    flows.prefect.add_task(row, "rank", split, state="FAILED")
    artifact = {"type": "markdown", "key": None, "flow_run_id": row["id"]}
    for data, day in (("| new |", 2), ("| old |", 1)):
        flows.prefect.artifacts.append(
            artifact | {"id": str(uuid4()), "data": data, "created": f"2026-01-0{day}T00:00:00Z"}
        )
    run = await shown(flows, row["id"])
    assert (run["object"], run["status"], run["flow"], run["model"]) == ("run", "failed", "rerank", "tiny")
    assert (run["lane"], run["error"], run["run_count"], run["duration_s"]) == ("interactive", "no room", 1, 1.5)
    assert run["ended_at"] - run["started_at"] == pytest.approx(1.5)
    assert run["flow_url"] == f"/flows/runs/flow-run/{row['id']}"
    assert [(step["step"], step["status"], step["parents"]) for step in run["steps"]] == [
        ("scores", "completed", []),
        ("rank", "failed", ["scores"]),
    ]
    assert run["report"] == "| new |"


async def test_what_only_an_admin_sees(flows: Flows) -> None:
    row = flows.prefect.add_run()
    flows.prefect.logs.append(
        {"level": 20, "message": "on cpu", "timestamp": row["start_time"], "flow_run_id": row["id"]}
    )
    own, all_of_it = await shown(flows, row["id"]), await shown(flows, row["id"], "admin")
    assert (own["key"], own["log"]) == (None, [])
    assert (all_of_it["key"], all_of_it["log"][0]["message"]) == ("user", "on cpu")
    assert (await flows.front.get("/v1/runs", "admin"))[1]["data"][0]["key"] == "user"
    assert (await flows.front.get("/v1/runs"))[1]["data"][0]["key"] is None


async def test_a_run_that_has_just_ended_is_in_memory(flows: Flows) -> None:
    async with flows.front.session.post(flows.front.url + PATH, json=CHAT, headers=flows.front.headers()) as answer:
        run = answer.headers["X-Coderai-Run"]
    seen = await shown(flows, run)
    assert (seen["status"], seen["model"], seen["run_count"]) == ("completed", "tiny", 1)
    (attempt,) = seen["steps"][0]["attempts"]
    assert (attempt["pool"], attempt["engine"]) == ("cpu", "cpu/tiny")
    assert attempt["reason"]
    assert await listed(flows) == [run]
    assert (await refused(flows, run, "cancel"))[0] == 409
    status, error = await refused(flows, run, "retry")
    assert (status, error["code"]) == (503, "flows_unavailable")  # it is not recorded yet
    # What was recorded of it while it ran does not hide its end; what is recorded of its end does.
    row = flows.prefect.add_run("chat", "RUNNING", id=run, infrastructure_pid="front:1")
    assert (await shown(flows, run))["status"] == "completed"
    assert await listed(flows, "?status=running") == []
    assert await listed(flows) == await listed(flows, "?status=completed") == [run]
    row["state"] = row["state"] | {"type": "SCHEDULED"}
    assert (await shown(flows, run))["status"] == "queued"
    assert await listed(flows, "?status=completed") == []
    assert await listed(flows, "?status=queued") == await listed(flows) == [run]


async def test_a_run_under_way_is_seen_and_cancelled(flows: Flows) -> None:
    begun, hang = asyncio.Event(), asyncio.Event()

    async def never(_request: web.Request) -> web.Response:
        begun.set()
        await hang.wait()
        return web.Response()

    flows.front.children.answer = never
    asked = asyncio.create_task(flows.front.post(PATH, CHAT))
    await begun.wait()
    (run,) = await listed(flows, "?status=running")
    seen = await shown(flows, run)
    assert (seen["status"], seen["ended_at"], seen["steps"][0]["status"]) == ("running", None, "running")
    assert (await refused(flows, run, "retry"))[0] == 409
    assert (await refused(flows, run, "cancel", "node"))[0] == 404
    status, body = await flows.front.post(f"/v1/runs/{run}/cancel", {})
    assert (status, body["status"]) == (202, "cancelling")
    status, body = await asyncio.wait_for(asked, 5)
    assert (status, body["error"]["code"]) == (409, "run_cancelled")
    hang.set()


async def test_one_key_s_runs_are_nobody_else_s(flows: Flows) -> None:
    row = flows.prefect.add_run("chat", "FAILED", key="user")
    keep_answer(flows, row["id"])
    unknown = str(uuid4())
    paths = ("", "/answer")
    assert await listed(flows, "", "node") == await listed(flows, "?key=user", "node") == []
    for path in paths:
        theirs, none = [await flows.front.get(f"/v1/runs/{run}{path}", "node") for run in (row["id"], unknown)]
        assert theirs[0] == none[0] == 404
        assert theirs[1]["error"]["message"].replace(row["id"], unknown) == none[1]["error"]["message"]
    for action in ("retry", "cancel"):
        theirs, none = [await refused(flows, run, action, "node") for run in (row["id"], unknown)]
        assert theirs[0] == none[0] == 404
        assert theirs[1]["message"].replace(row["id"], unknown) == none[1]["message"]
    status, _ = await flows.front.get(f"/v1/runs?after={row['id']}", "node")
    assert status == 404
    assert row["state"]["type"] == "FAILED"
    assert await listed(flows, "?key=user", "admin") == await listed(flows) == [row["id"]]
    assert await listed(flows, "?key=node", "admin") == []


async def test_a_key_whose_name_begins_like_another_s(flows: Flows) -> None:
    flows.prefect.add_run(key="user2")
    flows.prefect.add_run(key="us")
    assert await listed(flows) == []


async def test_pages(flows: Flows) -> None:
    rows = [flows.prefect.add_run(ago_s=10.0 * number)["id"] for number in range(1, 6)]
    _, body = await flows.front.get("/v1/runs?limit=2")
    assert ([run["id"] for run in body["data"]], body["has_more"]) == (rows[:2], True)
    _, body = await flows.front.get(f"/v1/runs?limit=2&after={rows[1]}")
    assert ([run["id"] for run in body["data"]], body["has_more"]) == (rows[2:4], True)
    _, body = await flows.front.get(f"/v1/runs?limit=2&after={rows[3]}")
    assert ([run["id"] for run in body["data"]], body["has_more"]) == (rows[4:], False)
    _, body = await flows.front.get(f"/v1/runs?limit=2&after={rows[1].upper()}")
    assert [run["id"] for run in body["data"]] == rows[2:4]


async def test_filters(flows: Flows) -> None:
    good, bad = flows.prefect.add_run(), flows.prefect.add_run("chat", "CRASHED", model="other")
    waiting = flows.prefect.add_run("chat", "PENDING")
    assert await listed(flows, "?status=completed") == [good["id"]]
    assert await listed(flows, "?status=crashed&model=other") == [bad["id"]]
    assert await listed(flows, "?status=completed&model=other") == []
    assert await listed(flows, "?status=queued") == [waiting["id"]]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "status=done", "page=2"])
async def test_a_list_that_cannot_be(flows: Flows, query: str) -> None:
    status, body = await flows.front.get(f"/v1/runs?{query}")
    assert (status, body["error"]["param"]) == (400, query.split("=")[0])


async def test_answers(flows: Flows) -> None:
    row, bare = flows.prefect.add_run(), flows.prefect.add_run()
    keep_answer(flows, row["id"])
    seen = await shown(flows, row["id"])
    assert (seen["answer"], seen["answer_url"]) == ({"a": 1}, f"/v1/runs/{row['id']}/answer")
    assert (await shown(flows, bare["id"]))["answer_url"] is None
    status, body = await flows.front.get(f"/v1/runs/{bare['id']}/answer")
    assert (status, body["error"]["code"]) == (404, "no_answer")
    row["state"]["type"] = "RUNNING"  # it is run again: the old answer is not the new one
    assert (await flows.front.get(f"/v1/runs/{row['id']}/answer"))[0] == 404


async def test_a_summary_that_a_job_has_made_is_sealed_for_its_owner(flows: Flows) -> None:
    row = flows.prefect.add_run("rerank", key="user")
    item = {"type": "compaction", "id": "cmp_1", "summary": "Otto is a cat."}
    keep_answer(flows, row["id"], json.dumps({"output": [item]}).encode(), SUMMARY_TYPE)
    assert (await shown(flows, row["id"]))["answer"] is None
    seals = flows.front.services.seals
    for scope in ("user", "admin"):
        status, body = await flows.front.get(f"/v1/runs/{row['id']}/answer", scope)
        assert (status, set(body["output"][0])) == (200, {"type", "id", "encrypted_content"})
        assert seals.open(body["output"][0]["encrypted_content"], KeyName("user")) == "Otto is a cat."


async def test_files_that_a_run_has_made_are_its_owner_s(flows: Flows) -> None:
    row = flows.prefect.add_run("rerank")
    ref = Blobs(flows.front.settings.at("jobs")).put(b"image")
    made = files_answer([{"blob": ref, "media_type": "image/png", "suffix": "png", "seed": 3}], "url")
    assert isinstance(made.value, bytes)
    keep_answer(flows, row["id"], made.value, FILES_TYPE)
    urls = []
    for scope in ("admin", "user"):  # whoever asks
        status, body = await flows.front.get(f"/v1/runs/{row['id']}/answer", scope)
        assert (status, body["data"][0]["seed"]) == (200, 3), body
        urls.append(body["data"][0]["url"])
    assert urls[0].startswith(f"{flows.front.url}/v1/files/image-")
    bare = [url.partition("?")[0] for url in urls]
    assert bare[0] == bare[1]
    async with flows.front.session.get(bare[0], headers=flows.front.headers()) as file:
        assert (file.status, await file.read()) == (200, b"image")
    assert (await shown(flows, row["id"]))["answer"] is None


@pytest.mark.parametrize(
    ("media_type", "told", "place"),
    [
        ("application/json", "application/json", "inline"),
        ("text/html", "text/html", "attachment"),
        ("image/svg+xml", "image/svg+xml", "attachment"),
        ("audio/wav\r\nSet-Cookie: a=b", "application/octet-stream", "attachment"),
    ],
)
async def test_an_answer_s_bytes(flows: Flows, media_type: str, told: str, place: str) -> None:
    row = flows.prefect.add_run()
    keep_answer(flows, row["id"], b"<script>", media_type)
    address = f"{flows.front.url}/v1/runs/{row['id']}/answer"
    async with flows.front.session.get(address, headers=flows.front.headers()) as answer:
        assert (answer.status, await answer.read()) == (200, b"<script>")
        assert answer.headers["Content-Type"].split(";")[0] == told
        assert answer.headers["Content-Disposition"] == f'{place}; filename="run-{row["id"]}"'
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox")
        assert "Set-Cookie" not in answer.headers
    assert (await shown(flows, row["id"]))["answer"] is None


@pytest.mark.parametrize("scope", ["user", "admin"])
async def test_a_retry(flows: Flows, scope: str) -> None:
    row = flows.prefect.add_run("chat", "FAILED", parameters={"request": CHAT})
    status, body = await flows.front.post(f"/v1/runs/{row['id']}/retry", {}, scope)
    assert (status, body["status"], body["flow"]) == (202, "queued", "chat")
    assert (row["state"]["name"], row["state"]["message"]) == ("AwaitingRetry", f"Retried by the key '{scope}'")
    assert (await refused(flows, row["id"], "retry"))[0] == 409


async def test_a_retry_of_a_large_request(flows: Flows) -> None:
    for folder in ("payloads", "jobs"):
        ref = Blobs(flows.front.settings.at(folder)).put(b'{"model": "tiny"}')
        row = flows.prefect.add_run("chat", "CRASHED", parameters={"request": blob_parameter(ref)})
        assert (await flows.front.post(f"/v1/runs/{row['id']}/retry", {}))[0] == 202


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"request": gone("record.payloads is none")}, "record.payloads is none"),
        ({"request": blob_parameter("sha256:" + "0" * 64)}, "is not kept any more"),
        ({}, "without its request"),
        ({"request": "text"}, "without its request"),
    ],
)
async def test_a_retry_without_the_request(flows: Flows, parameters: Any, words: str) -> None:
    row = flows.prefect.add_run("chat", "FAILED", parameters=parameters)
    status, error = await refused(flows, row["id"], "retry")
    assert (status, error["code"]) == (410, "payload_gone")
    assert words in error["message"]
    assert row["state"]["type"] == "FAILED"


async def test_a_retry_that_nobody_would_execute(flows: Flows) -> None:
    row = flows.prefect.add_run("chat", "FAILED", parameters={"request": CHAT}, deployment_id=None)
    assert (await refused(flows, row["id"], "retry"))[0] == 409


@pytest.mark.parametrize(("state", "becomes"), [("SCHEDULED", "cancelled"), ("RUNNING", "cancelling")])
async def test_cancel_a_job(flows: Flows, state: str, becomes: str) -> None:
    row = flows.prefect.add_run("chat", state)
    status, body = await flows.front.post(f"/v1/runs/{row['id']}/cancel", {})
    assert (status, body["status"], row["state"]["type"]) == (202, becomes, becomes.upper())


async def test_what_is_over_cannot_be_cancelled(flows: Flows) -> None:
    row = flows.prefect.add_run("chat", "COMPLETED")
    status, error = await refused(flows, row["id"], "cancel")
    assert (status, error["code"]) == (409, "run_over")


async def test_while_prefect_is_down(flows: Flows, unused_tcp_port: int) -> None:
    async with flows.front.session.post(flows.front.url + PATH, json=CHAT, headers=flows.front.headers()) as answer:
        run = answer.headers["X-Coderai-Run"]
    row = flows.prefect.add_run()
    async with PrefectApi(PrefectAddress("x", None, "it is starting")) as api:
        flows.use(api)
        _, body = await flows.front.get("/v1/runs")
        assert [seen["id"] for seen in body["data"]] == [run]
        assert "it is starting" in body["incomplete"]
        assert (await shown(flows, run))["status"] == "completed"
        for path in (row["id"], str(uuid4())):
            status, body = await flows.front.get(f"/v1/runs/{path}")
            assert (status, body["error"]["code"]) == (503, "flows_unavailable")


async def test_without_a_flow_run_server(flows: Flows) -> None:
    flows.use(None)
    async with flows.front.session.post(flows.front.url + PATH, json=CHAT, headers=flows.front.headers()) as answer:
        run = answer.headers["X-Coderai-Run"]
    assert await listed(flows) == [run]
    assert (await shown(flows, run))["status"] == "completed"
    assert (await refused(flows, run, "retry"))[0] == 503
    assert (await flows.front.get(f"/v1/runs/{uuid4()}"))[0] == 404


async def test_a_key_s_limits_hold_for_retries(start_front: StartFront) -> None:
    async with beside_prefect(start_front, auth={"requests_per_minute": 1}) as flows:
        rows = [flows.prefect.add_run("chat", "FAILED", parameters={"request": CHAT}) for _ in range(2)]
        got = [(await flows.front.post(f"/v1/runs/{row['id']}/retry", {}))[0] for row in rows]
        assert got == [202, 429]


@pytest.mark.slow
async def test_beside_the_real_server(start_front: StartFront, prefect_server: PrefectServer) -> None:
    """A recorded run and a job, from the recorder's own rows to retry and cancel."""
    front = await start_front()
    failed = one_step("failed", error="no room", key="user")
    await asyncio.to_thread(prefect_server.record, failed, one_step(key="other"))
    async with PrefectApi(PrefectAddress(prefect_server.authorization, prefect_server.url)) as api:
        both = Flows(front, FakePrefect())
        both.use(api)
        run = await shown(both, failed.id)
        assert (run["status"], run["error"], run["duration_s"], run["lane"]) == (
            "failed",
            "no room",
            1.5,
            "interactive",
        )
        assert run["started_at"] == failed.started_at
        assert "cpu/m" in run["report"]
        assert await listed(both) == [failed.id]
        assert await listed(both, f"?after={failed.id}") == []
        assert (await refused(both, failed.id, "cancel"))[0] == 409
        status, body = await front.post(f"/v1/runs/{failed.id}/retry", {})
        assert (status, body["status"]) == (202, "queued")
        status, body = await front.post(f"/v1/runs/{failed.id}/cancel", {})
        assert (status, body["status"]) == (202, "cancelling")  # the worker process ends what was begun before
        status, job = await front.post(PATH, CHAT, **{"X-Coderai-Lane": "job"})
        assert (status, job["status"], job["lane"]) == (202, "queued", "job")
        assert await listed(both, "?status=queued") == [job["id"]]
        assert job["id"] not in await listed(both, "", "node")
