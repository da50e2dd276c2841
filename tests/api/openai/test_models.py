"""`/v1/models`: every model that a request may name, what it does, and the removal of one that was added."""

import asyncio

import openai

from tests.api.conftest import Front, StartFront
from workers.catalogue_rows import ModelRows
from workers.weights import read_weights

FAR = {"name": "own/far:v1", "service_url": "http://box", "api_key": "sk-hush", "capabilities": ["embeddings"]}


async def add_far(front: Front) -> None:
    rows = ModelRows(front.settings, front.services.database)
    await asyncio.to_thread(rows.add, FAR, read_weights, trusted=True)
    await front.services.shelf.refresh()


async def test_the_list(start_front: StartFront) -> None:
    front = await start_front()
    await add_far(front)
    status, body = await front.get("/v1/models")
    assert (status, body["object"]) == (200, "list")
    far, tiny = body["data"]
    assert (tiny["id"], tiny["object"], tiny["owned_by"], tiny["aliases"]) == ("tiny", "model", "coderai", ["gpt-4o"])
    assert (tiny["capabilities"], tiny["format"], tiny["source"]) == (["chat", "completions"], "gguf", "file")
    assert (tiny["state"], tiny["max_instances"], tiny["rerank_method"]) == ("cold", 2, None)
    assert (far["id"], far["owned_by"], far["source"]) == ("own/far:v1", "service", "database")
    assert "hush" not in str(body)
    assert "path" not in tiny


async def test_one_by_name_by_alias_and_with_a_slash_in_it(start_front: StartFront) -> None:
    front = await start_front()
    await add_far(front)
    assert (await front.get("/v1/models/tiny"))[1]["id"] == "tiny"
    assert (await front.get("/v1/models/gpt-4o"))[1]["id"] == "tiny"
    assert (await front.get("/v1/models/own/far:v1"))[1]["id"] == "own/far:v1"
    assert (await front.get("/v1/models/own%2Ffar%3Av1"))[1]["id"] == "own/far:v1"
    status, body = await front.get("/v1/models/tinny")
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "did you mean 'tiny'" in body["error"]["message"]


async def test_the_client_library_reads_it(start_front: StartFront) -> None:
    front = await start_front()
    async with openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key=front.keys["user"]) as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("tiny")).owned_by == "coderai"


async def test_the_state_follows_the_engines(start_front: StartFront) -> None:
    front = await start_front()
    await front.post("/admin/api/model-load", {"model": "tiny"}, "admin")
    assert (await front.get("/v1/models/tiny"))[1]["state"] == "ready"
    front.children.quarantine("cpu/tiny")
    await asyncio.sleep(0.02)
    assert (await front.get("/v1/models/tiny"))[1]["state"] == "quarantined"


async def delete(front: Front, name: str, scope: str = "admin") -> tuple[int, dict[str, object]]:
    async with front.session.delete(f"{front.url}/v1/models/{name}", headers=front.headers(scope)) as answer:
        return answer.status, await answer.json()


async def test_a_far_service_that_does_not_answer_is_down(start_front: StartFront) -> None:
    front = await start_front([{"name": "far", "service_url": "http://127.0.0.1:9"}])
    assert (await front.post("/v1/chat/completions", {"model": "far", "messages": []}))[0] == 400
    message = {"role": "user", "content": "x"}
    status, _body = await front.post("/v1/chat/completions", {"model": "far", "messages": [message]})
    assert status == 502
    assert (await front.get("/v1/models/far"))[1]["state"] == "down"
    (engine,) = (await front.get("/admin/api/engines", "admin"))[1]["engines"]
    assert (engine["state"], engine["reason"]) == ("down", "it is not answering its health check")


async def test_a_model_that_was_added_can_be_removed(start_front: StartFront) -> None:
    front = await start_front()
    await add_far(front)
    assert (await delete(front, "own/far:v1", "user"))[0] == 403
    assert await delete(front, "own/far:v1") == (200, {"id": "own/far:v1", "object": "model", "deleted": True})
    assert (await front.get("/v1/models/own/far:v1"))[0] == 404
    assert (await delete(front, "own/far:v1"))[0] == 404


async def test_a_model_of_the_file_cannot(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await delete(front, "gpt-4o")
    assert status == 409
    assert "coderai.toml" in str(body)
    assert (await front.get("/v1/models/tiny"))[0] == 200
