"""The processes of the install, as an operator sees them."""

from tests.api.conftest import StartFront


async def test_each_process_with_how_it_ended_before(start_front: StartFront) -> None:
    front = await start_front()
    assert await front.get("/admin/api/processes", "admin") == (200, {"processes": []})
    await front.post("/admin/api/model-load", {"model": "tiny"}, "admin")
    await front.children.kill("cpu/tiny")
    (gone,) = (await front.get("/admin/api/processes", "admin"))[1]["processes"]
    assert gone == {"name": "cpu/tiny", "status": "backoff", "pid": None, "incarnation": 1, "reason": "killed"}
    await front.children.restart("cpu/tiny")
    (back,) = (await front.get("/admin/api/processes", "admin"))[1]["processes"]
    assert (back["status"], back["incarnation"]) == ("running", 2)


async def test_they_are_the_operators_alone(start_front: StartFront) -> None:
    front = await start_front()
    assert (await front.get("/admin/api/processes", "user"))[0] == 403
    assert (await front.get("/admin/api/processes", None))[0] == 401
