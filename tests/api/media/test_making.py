"""Which model makes files, and what is said where there is none."""

from typing import Any

import pytest

from api.media.making import maker, prepare
from infra.errors import InvalidRequest, ModelNotFound, NotInstalled
from infra.types import Json
from tests.api.conftest import StartFront
from workers.extras import LIBRARIES
from workers.types import Capability, ModelFormat

pytestmark = pytest.mark.enable_socket
PAINTER: dict[str, Any] = {
    "name": "painter",
    "path": "/weights/painter",
    "format": "diffusers",
    "capabilities": ["images"],
    "weights_bytes": 1000,
}
FAR: dict[str, Any] = {"name": "far", "service_url": "http://127.0.0.1:9", "capabilities": ["images"]}


async def test_the_one_that_is_named_or_the_first(start_front: StartFront) -> None:
    services = (await start_front([FAR | {"capabilities": ["chat"]}, PAINTER])).services
    assert maker(services, "painter", Capability.IMAGES).name == "painter"
    assert maker(services, None, Capability.IMAGES).name == "painter"
    assert maker(services, "far", Capability.IMAGES).name == "far"  # what it does not do is told where it is planned
    with pytest.raises(ModelNotFound):
        maker(services, "nobody", Capability.IMAGES)


async def test_there_is_none(start_front: StartFront) -> None:
    services = (await start_front([FAR])).services
    with pytest.raises(NotInstalled, match=r"pip install 'coderai\[torch\]'"):
        maker(services, "", Capability.VIDEO)


async def test_one_far_away_needs_nothing_here(start_front: StartFront) -> None:
    entry = maker((await start_front([FAR])).services, None, Capability.IMAGES)
    body: dict[str, Json] = {}
    prepare(body, {}, entry)
    assert body == {}  # no seed is drawn for it
    with pytest.raises(InvalidRequest, match="far away") as refused:
        prepare(body, {"loras": ["ink"]}, entry)
    assert refused.value.param == "loras"


async def test_one_of_ours_gets_a_seed(start_front: StartFront) -> None:
    entry = maker((await start_front([PAINTER])).services, None, Capability.IMAGES)
    body: dict[str, Json] = {}
    prepare(body, {}, entry)
    assert isinstance(body["seed"], int)
    body = {"seed": 3}
    prepare(body, {}, entry)
    assert body == {"seed": 3}


async def test_what_runs_it_is_not_installed(start_front: StartFront, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARIES, ModelFormat.DIFFUSERS, ("no_such_library",))
    front = await start_front([PAINTER])
    status, answer = await front.post("/v1/images/generations", {"prompt": "a fox"})
    assert status == 501
    assert "pip install 'coderai[torch]'" in answer["error"]["message"]
