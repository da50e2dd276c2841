"""Operators' routes: what is where, loading and unloading, and what is refused."""

from tests.api.conftest import StartFront


async def test_cards_and_engines(start_front: StartFront) -> None:
    front = await start_front(models=None)
    status, before = await front.get("/admin/api/engines", "admin")
    assert status == 200
    assert before["engines"] == []
    (cpu,) = [pool for pool in before["pools"] if pool["pool"] == "cpu"]
    assert cpu["backend"] == "cpu"
    assert 0 < cpu["free_bytes"] <= cpu["total_bytes"]
    assert (cpu["unusable"], cpu["paused"]) == (None, None)
    status, answer = await front.post("/admin/api/model-load", {"model": "gpt-4o"}, "admin")
    assert (status, answer) == (200, {"model": "tiny", "engine": "cpu/tiny", "state": "ready"})
    (engine,) = (await front.get("/admin/api/engines", "admin"))[1]["engines"]
    assert (engine["id"], engine["model"], engine["pool"], engine["state"]) == ("cpu/tiny", "tiny", "cpu", "ready")
    assert (engine["slots"], engine["in_flight"], engine["waiting"], engine["incarnation"]) == (2, 0, 0, 1)
    assert engine["local"]
    assert engine["memory_bytes"] > 0


async def test_loading_twice_is_one_engine_and_unloading_twice_none(start_front: StartFront) -> None:
    front = await start_front()
    for _ in range(2):
        assert (await front.post("/admin/api/model-load", {"model": "tiny"}, "admin"))[0] == 200
    assert front.children.started == ["cpu/tiny"]
    counts = [(await front.post("/admin/api/model-unload", {"model": "tiny"}, "admin"))[1]["engines"] for _ in range(2)]
    assert counts == [1, 0]


async def test_a_load_that_fails_says_why(start_front: StartFront) -> None:
    front = await start_front()
    front.children.broken.add("cpu/tiny")
    status, body = await front.post("/admin/api/model-load", {"model": "tiny"}, "admin")
    assert (status, body["error"]["code"]) == (503, "model_load_failed")
    assert "not a GGUF file" in body["error"]["message"]


async def test_what_is_refused(start_front: StartFront) -> None:
    front = await start_front()
    for path in ("/admin/api/model-load", "/admin/api/model-unload"):
        assert (await front.post(path, {"model": "tiny"}, "user"))[0] == 403
        assert (await front.post(path, {"model": "tiny"}, "node"))[0] == 403
        status, body = await front.post(path, {"model": "nope"}, "admin")
        assert (status, body["error"]["code"]) == (404, "model_not_found")
        status, body = await front.post(path, {"model": "tiny", "force": True}, "admin")
        assert (status, body["error"]["param"]) == (400, "force")
        status, body = await front.post(path, {}, "admin")
        assert (status, body["error"]["param"]) == (400, "model")
    assert front.children.started == []
