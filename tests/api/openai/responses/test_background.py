"""Responses in the background through OpenAI's own client: queued, shown, gone on from, cancelled, deleted."""

from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, ConflictError, InternalServerError, NotFoundError

from infra.run_files import RunFiles
from infra.types import ResponseId
from tests.api.conftest import TOKEN
from tests.api.openai.responses.conftest import Background

ERROR: dict[str, Any] = {"code": "server_error", "message": "it broke"}


async def plan(background: Background, request: Any) -> tuple[int, Any]:
    """What the worker process is told to do."""
    front = background.flows.front
    ask = {"flow": "responses", "request": request, "key": "user"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with front.session.post(f"{front.url}/internal/plan", json=ask, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_it_is_queued_at_once_as_one_flow_run(background: Background) -> None:
    response = await background.begun(instructions="Be brief.", metadata={"a": "b"})
    run = background.run(response.id)
    assert (response.status, response.background, response.output) == ("queued", True, [])
    assert (response.model, response.instructions, response.metadata) == ("tiny", "Be brief.", {"a": "b"})
    assert run["deployment_id"] == background.flows.prefect.deployments["responses"]
    assert sorted(run["tags"]) == ["key:user", "lane:job", "model:tiny", f"response:{response.id}"]
    kept = {"model": "tiny", "input": "hi", "instructions": "Be brief.", "metadata": {"a": "b"}}
    assert run["parameters"] == {"request": kept}
    assert (await plan(background, kept))[0] == 200
    assert background.flows.front.children.started == []
    shown = await background.client.responses.retrieve(response.id)
    assert shown == response
    assert (shown.model_extra or {})["run"] == run["id"]


async def test_its_run_stands_in_a_header_and_it_is_counted(background: Background) -> None:
    asked = {"model": "tiny", "input": "hi", "background": True}
    front = background.flows.front
    async with front.session.post(front.url + "/v1/responses", json=asked, headers=front.headers()) as answer:
        assert answer.headers["X-Coderai-Run"] == background.run((await answer.json())["id"])["id"]
    async with front.session.get(front.url + "/metrics", headers=front.headers("admin")) as answer:
        assert 'kind="responses"' in await answer.text()
    assert front.services.accounting.active == 0


async def test_its_answer_is_what_is_shown(background: Background) -> None:
    response = await background.begun()
    background.rows.begin(ResponseId(response.id), background.run(response.id)["id"])
    assert (await background.client.responses.retrieve(response.id)).status == "in_progress"
    background.answer(response.id)
    done = await background.client.responses.retrieve(response.id)
    assert (done.id, done.status, done.output_text) == (response.id, "completed", "Hello.")
    assert (done.created_at, done.background, done.store) == (response.created_at, True, True)  # type: ignore[attr-defined]
    (item,) = (await background.client.responses.input_items.list(response.id)).data
    assert item.type == "message"


async def test_a_conversation_goes_on_from_it_once_it_is_over(background: Background) -> None:
    response = await background.begun()
    for _ in range(2):
        with pytest.raises(BadRequestError, match="is queued: wait for its end") as refused:
            await background.begun(previous_response_id=response.id)
    assert refused.value.param == "previous_response_id"
    background.answer(response.id)
    second = await background.begun(input="more", previous_response_id=response.id)
    assert second.previous_response_id == response.id
    status, told = await plan(background, background.run(second.id)["parameters"]["request"])
    messages = told["steps"][0]["inputs"]["request"]["messages"]
    assert (status, [message["content"] for message in messages]) == (200, ["hi", "Hello.", "more"])
    background.rows.end(ResponseId(second.id), "failed", ERROR)
    with pytest.raises(BadRequestError, match="is failed: go on from one that has an answer"):
        await background.begun(previous_response_id=second.id)
    failed = await background.client.responses.retrieve(second.id)
    assert failed.error is not None
    assert (failed.status, failed.error.message) == ("failed", "it broke")


@pytest.mark.parametrize(("state", "wish"), [("SCHEDULED", "CANCELLED"), ("RUNNING", "CANCELLING")])
async def test_cancelling_ends_its_run(background: Background, state: str, wish: str) -> None:
    response = await background.begun()
    run = background.run(response.id)
    run["state"]["type"] = state
    assert (await background.client.responses.cancel(response.id)).status == "cancelled"
    assert background.run(response.id)["state"]["type"] == wish
    background.rows.answer(ResponseId(response.id), {"status": "completed", "output": []})
    assert (await background.client.responses.cancel(response.id)).status == "cancelled"


async def test_one_that_is_over_is_cancelled_no_more(background: Background) -> None:
    response = await background.begun()
    background.answer(response.id)
    assert (await background.client.responses.cancel(response.id)).status == "completed"


@pytest.mark.parametrize("over", [False, True])
async def test_a_deletion_leaves_nothing(background: Background, over: bool) -> None:
    response = await background.begun()
    run = background.run(response.id)
    files = RunFiles(background.flows.front.settings.home)
    telling = background.telling(response.id)
    telling.say("Hel")
    if over:
        telling.answer()
        files.keep_answer(run["id"], b"{}", "application/json")
    await background.client.responses.delete(response.id)
    with pytest.raises(NotFoundError):
        await background.client.responses.retrieve(response.id)
    telling.say("lo.")
    telling.die()
    assert (files.answer(run["id"]), background.events.known()) == (None, [])
    assert background.run(response.id)["state"]["type"] == ("SCHEDULED" if over else "CANCELLED")


async def test_another_key_has_no_such_response(background: Background) -> None:
    response = await background.begun()
    background.answer(response.id)
    other: AsyncOpenAI = background.clients["node"]
    for reach in (other.responses.retrieve, other.responses.cancel, other.responses.delete):
        with pytest.raises(NotFoundError):
            await reach(response.id)
    with pytest.raises(NotFoundError):
        await other.responses.retrieve(response.id, stream=True)
    with pytest.raises(NotFoundError):
        await other.responses.create(model="tiny", input="x", background=True, previous_response_id=response.id)
    assert (await background.clients["admin"].responses.retrieve(response.id)).output_text == "Hello."


async def test_without_flow_runs_nothing_is_stored(background: Background) -> None:
    background.flows.use(None)
    with pytest.raises(InternalServerError) as refused:
        await background.begun()
    assert (refused.value.status_code, background.rows.under_way()) == (503, [])


async def test_one_whose_run_cannot_be_made_is_not_stored(background: Background) -> None:
    background.flows.prefect.broken = b"no json"
    with pytest.raises(InternalServerError):
        await background.begun()
    assert background.rows.under_way() == []


async def test_the_same_idempotency_key_is_the_same_response(background: Background) -> None:
    once = {"Idempotency-Key": "k"}
    first = await background.begun(extra_headers=once)
    assert (await background.begun(extra_headers=once)).id == first.id
    assert len(background.rows.under_way()) == len(background.flows.prefect.runs) == 1
    with pytest.raises(ConflictError):
        await background.begun(extra_headers=once, input="other")
    assert len(background.rows.under_way()) == 1


async def test_one_that_was_taken_for_lost_is_found_by_its_idempotency_key(background: Background) -> None:
    """Its run was made, but the front did not hear of that."""
    once = {"Idempotency-Key": "k"}
    first = await background.begun(extra_headers=once)
    background.rows.forget(ResponseId(first.id))
    again = await background.begun(extra_headers=once)
    assert (again.id, again.status) == (first.id, "queued")
    background.answer(first.id)
    assert (await background.client.responses.retrieve(first.id)).output_text == "Hello."


async def test_a_job_s_idempotency_key_is_no_response(background: Background) -> None:
    front = background.flows.front
    headers = {"X-Coderai-Lane": "job", "Idempotency-Key": "k"}
    assert (await front.post("/v1/responses", {"model": "tiny", "input": "hi"}, **headers))[0] == 202
    with pytest.raises(ConflictError):
        await background.begun(extra_headers={"Idempotency-Key": "k"})
    assert background.rows.under_way() == []


async def test_with_the_job_lane_it_is_a_response_all_the_same(background: Background) -> None:
    assert (await background.begun(extra_headers={"X-Coderai-Lane": "job"})).status == "queued"
    with pytest.raises(BadRequestError):
        await background.begun(extra_headers={"X-Coderai-Lane": "fast"})


async def test_what_is_carried_out_later_asks_for_nothing_in_the_background(background: Background) -> None:
    status, body = await plan(background, {"model": "tiny", "input": "hi", "background": True})
    assert (status, body["error"]["param"]) == (400, "background")
