"""`loras` of a request: by whatever it names them, the engine gets files; and nobody gets at another's."""

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import BodyPartReader, web

from infra.database import open_database
from infra.tokens import create_key
from tests.api.conftest import Front, StartFront
from tests.documents import drawn, encoded
from tests.tiny_loras import safetensors
from workers.engine.drawing import FIELD

pytestmark = pytest.mark.enable_socket
PAINTER = {
    "name": "painter",
    "path": "/weights/painter",
    "format": "diffusers",
    "capabilities": ["images"],
    "weights_bytes": 1000,
    "max_instances": 1,
}
PNG = encoded(drawn(("x",), width=64))
GOOD, OTHER = safetensors(), safetensors(fill=b"\x02")
REF = f"sha256:{hashlib.sha256(GOOD).hexdigest()}"
TEXT = base64.b64encode(GOOD).decode()


class Painter:
    """An engine that notes the adapters of each drawing, as `(weight, name, content)`."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[float, str, bytes]]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            if part.name == FIELD:
                drawing = orjson.loads(await part.read())
                self.asked.append(await asyncio.to_thread(_read, drawing["loras"]))
        return web.Response(body=PNG, content_type="image/png")


def _read(loras: list[dict[str, Any]]) -> list[tuple[float, str, bytes]]:
    return [(lora["weight"], lora["name"], Path(lora["path"]).read_bytes()) for lora in loras]


@pytest.fixture
def painter() -> Painter:
    return Painter()


async def started(start_front: StartFront, painter: Painter, **sections: Any) -> Front:
    """A front with a second user."""
    front = await start_front([PAINTER], **sections)
    front.children.answer = painter.answer
    database = open_database(front.settings.sqlalchemy_url)
    front.keys["second"] = create_key(database, "second", "user")
    database.close()
    await front.services.shelf.refresh()
    return front


async def upload(front: Front, data: bytes, name: str = "", scope: str = "user") -> str:
    url = f"{front.url}/v1/loras/upload" + (f"?name={name}" if name else "")
    async with front.session.post(url, data=data, headers=front.headers(scope)) as answer:
        assert answer.status == 200
        return str((await answer.json())["id"])


async def draw(front: Front, loras: Any, scope: str = "user", **headers: str) -> tuple[int, Any]:
    body = {"model": "painter", "prompt": "a cat", "size": "64x64", "response_format": "b64_json", "loras": loras}
    return await front.post("/v1/images/generations", body, scope, **headers)


async def ok(front: Front, painter: Painter, loras: Any, scope: str = "user") -> list[tuple[float, str, bytes]]:
    status, body = await draw(front, loras, scope)
    assert status == 200, body
    return painter.asked[-1]


async def refused(front: Front, loras: Any, scope: str = "user") -> tuple[int, dict[str, Any]]:
    status, body = await draw(front, loras, scope)
    return status, body["error"]


def kept(front: Front) -> list[Path]:
    folders = ("passing", "payloads", "jobs")
    return [path for folder in folders for path in front.settings.at(folder).rglob("*") if path.is_file()]


async def gone(front: Front, *contents: bytes) -> None:
    """Wait until nothing of these lies with requests: it goes in the moment in which the answer is there."""
    refs = {hashlib.sha256(data).hexdigest() for data in contents}
    for _ in range(200):
        if not (left := refs & {f"{path.parent.name}{path.name}" for path in kept(front)}):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(left)


async def test_a_registered_one_goes_by_name_and_by_id(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter)
    await upload(front, GOOD, "style")
    for item in ({"id": "name:style"}, {"id": "style"}, {"id": REF}, {"name": "style"}):
        assert await ok(front, painter, [item | {"weight": 0.5}]) == [(0.5, "style", GOOD)]
    assert await ok(front, painter, ["style"]) == [(1.0, "style", GOOD)]
    assert await ok(front, painter, [{"id": REF, "name": "mine"}]) == [(1.0, "mine", GOOD)]
    assert await ok(front, painter, []) == []
    assert await ok(front, painter, None) == []


async def test_several_keep_their_order(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter)
    await upload(front, GOOD, "one")
    await upload(front, OTHER, "two")
    wanted = [{"id": "two", "weight": -1}, {"id": "one", "weight": 10}]
    assert await ok(front, painter, wanted) == [(-1.0, "two", OTHER), (10.0, "one", GOOD)]


async def test_one_may_come_with_its_request(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter)
    for item in ({"data": TEXT}, {"file": TEXT}, {"data": f"data:application/octet-stream;base64,{TEXT}"}):
        ((weight, name, data),) = await ok(front, painter, [item])
        assert (weight, data) == (1.0, GOOD)
        assert name == REF[:19]
    # Where the id is not known, what comes along with it is taken.
    assert await ok(front, painter, [{"id": "name:later", "data": TEXT, "name": "x"}]) == [(1.0, "x", GOOD)]
    assert (await front.get("/v1/loras"))[1]["data"] == [], "it is the request's alone"


async def test_a_path_is_taken_below_a_root(start_front: StartFront, painter: Painter, tmp_path: Path) -> None:
    root = tmp_path / "loras"
    await asyncio.to_thread(root.mkdir)
    file = root / "style.safetensors"
    await asyncio.to_thread(file.write_bytes, GOOD)
    front = await started(start_front, painter, loras={"roots": [str(root)]}, record={"payloads": "all"})
    for item in ({"path": str(file)}, {"model": "style.safetensors"}, {"path": "style.safetensors"}):
        assert await ok(front, painter, [item]) == [(1.0, "style.safetensors", GOOD)]
    await asyncio.to_thread(file.write_bytes, OTHER)
    assert await ok(front, painter, [{"path": str(file)}]) == [(1.0, "style.safetensors", OTHER)]
    for copy in kept(front):
        await asyncio.to_thread(copy.unlink)
    assert await ok(front, painter, [{"path": str(file)}]) == [(1.0, "style.safetensors", OTHER)]


PATHS = ["/etc/passwd", "../secret.safetensors", "link", "missing", "", "a\0b"]


async def test_a_path_leads_nowhere_else(start_front: StartFront, painter: Painter, tmp_path: Path) -> None:
    root = tmp_path / "loras"
    await asyncio.to_thread(root.mkdir)
    await asyncio.to_thread((tmp_path / "secret.safetensors").write_bytes, GOOD)
    await asyncio.to_thread((root / "link").symlink_to, tmp_path / "secret.safetensors")
    front = await started(start_front, painter, loras={"roots": [str(root)]})
    for text in (*PATHS, str(tmp_path / "secret.safetensors")):
        for field in ("path", "model"):
            status, error = await refused(front, [{field: text}])
            assert (status, error["param"]) == (400, "loras"), text
    assert painter.asked == []


async def test_without_roots_no_path_is_taken(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter)
    status, error = await refused(front, [{"path": "/etc/passwd"}])
    assert status == 400
    assert "loras.roots is empty" in error["message"]


async def test_two_keys_do_not_reach_each_other_s(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter)
    await upload(front, GOOD, "style")
    for item in ({"id": "name:style"}, {"id": REF}, {"name": "style"}):
        status, error = await refused(front, [item], "second")
        assert (status, error["code"]) == (404, "lora_not_found")
    await ok(front, painter, [{"id": REF}])
    # What lies with another key's request is no more to be had.
    assert (await refused(front, [{"id": REF}], "second"))[0] == 404
    assert (await refused(front, [{"blob": REF}], "second"))[0] == 400
    assert await ok(front, painter, [{"id": "style"}], "admin") == [(1.0, "style", GOOD)]
    await upload(front, OTHER, "house", "admin")
    assert await ok(front, painter, [{"id": "house"}], "second") == [(1.0, "house", OTHER)]


async def test_an_unknown_one_is_named_with_near_ones(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter)
    await upload(front, GOOD, "watercolour")
    status, error = await refused(front, [{"id": "name:watercolor"}])
    assert (status, error["code"], error["param"]) == (404, "lora_not_found", "loras")
    assert "near names: watercolour" in error["message"]


BAD: list[Any] = [
    "style",
    {"id": "style"},
    [""],
    [["style"]],
    [{}],
    [{"weight": 1}],
    [{"id": 5}],
    [{"id": ""}],
    [{"id": ["style"]}],
    [{"id": "style", "scale": 1}],
    [{"id": "style", "weight": "1"}],
    [{"id": "style", "weight": True}],
    [{"id": "style", "weight": 10.5}],
    [{"id": "style", "weight": -11}],
    [{"id": "style", "weight": 1e400}],
    [{"id": "style"}] * 9,
    [{"id": "style"}, {"id": "name:style"}],
    [{"id": "style"}, {"data": TEXT}],
    [{"data": "no base64!"}],
    [{"data": base64.b64encode(b"\x80\x02pickle" + b"\0" * 50).decode()}],
    [{"data": base64.b64encode(GOOD[:-3]).decode()}],
    [{"url": "style"}],
    [{"url": "file:///etc/passwd"}],
]


@pytest.mark.parametrize("loras", BAD)
async def test_what_is_wrong_is_refused_and_nothing_of_it_stays(
    start_front: StartFront, painter: Painter, loras: Any
) -> None:
    front = await started(start_front, painter)
    await upload(front, GOOD, "style")
    body = orjson.dumps({"model": "painter", "prompt": "a cat", "loras": loras}).replace(b"null", b"1e400")
    url = f"{front.url}/v1/images/generations"
    async with front.session.post(url, data=body, headers=front.headers()) as answer:
        assert answer.status == 400, await answer.text()
        param = (await answer.json())["error"]["param"]
        assert param is None or param.startswith("loras")
    assert painter.asked == []
    await gone(front, GOOD, OTHER)
    assert kept(front) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://127.1/x", "http://[::1]/x", "http://10.0.0.1/x"])
async def test_a_private_address_is_not_opened(start_front: StartFront, painter: Painter, url: str) -> None:
    front = await started(start_front, painter)
    status, error = await refused(front, [{"url": url}])
    assert (status, error["param"]) == (403, "loras")
    assert kept(front) == []


async def test_what_a_kept_run_used_outlives_its_name(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter, record={"payloads": "all"})
    await upload(front, GOOD, "style")
    await ok(front, painter, [{"id": "style"}])
    stored = front.services.files.files.store.path(REF)
    (adapter,) = [path for path in kept(front) if await asyncio.to_thread(path.read_bytes) == GOOD]
    assert await asyncio.to_thread(adapter.samefile, stored), "a second name, not a copy"
    async with front.session.delete(f"{front.url}/v1/loras/style", headers=front.headers()) as answer:
        assert answer.status == 200
    assert not await asyncio.to_thread(stored.exists)
    assert await asyncio.to_thread(adapter.read_bytes) == GOOD
    assert (await refused(front, [{"id": "style"}]))[0] == 404


async def test_a_run_that_is_not_kept_takes_its_own_along(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter, record={"payloads": "none"})
    await upload(front, GOOD, "style")
    await ok(front, painter, [{"id": "style"}, {"data": base64.b64encode(OTHER).decode()}])
    await gone(front, GOOD, OTHER)
    assert await ok(front, painter, [{"id": "style"}]) == [(1.0, "style", GOOD)]


async def test_one_whose_content_is_lost_is_said(start_front: StartFront, painter: Painter) -> None:
    front = await started(start_front, painter)
    await upload(front, GOOD, "style")
    front.services.files.files.store.remove(REF)
    assert (await refused(front, [{"id": "style"}]))[0] == 404
