"""A part's images are drawn one by one and kept; the answer has all of them in order."""

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import BodyPartReader, web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, PayloadGone, UpstreamRefused
from infra.types import EngineId, Json, PoolId
from tasks.images import collect_images, draw_images
from tasks.made import FILES_TYPE
from tasks.types import TaskCall
from tests.fakes import make_entry
from workers.engine.drawing import Drawing
from workers.live import Engine
from workers.transport import Transport
from workers.types import Capability, ModelFormat

pytestmark = pytest.mark.enable_socket


class Painter:
    """An engine on this loop: keeps what it is asked, answers with the seed."""

    def __init__(self, home: Path) -> None:
        self.given, self.made = Blobs(home / "payloads"), Blobs(home / "made")
        self.transport = Transport()
        self.url = ""
        self.status = 200
        self.drawings: list[Drawing] = []
        self.files: list[dict[str, bytes]] = []
        self.paths: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        files: dict[str, bytes] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            data = bytes(await part.read())
            if part.filename is None:
                assert part.name == "drawing"
                self.drawings.append(Drawing.model_validate_json(data))
            else:
                files[str(part.name)] = data
        self.files.append(files)
        self.paths.append(request.path)
        if self.status == 204:
            return web.Response()
        if self.status != 200:
            error = {"error": {"message": "no", "param": "size", "code": "wrong"}}
            return web.json_response(error, status=self.status)
        return web.Response(body=b"image %d" % self.drawings[-1].seed, content_type="image/png")

    def call(self, **inputs: Json) -> TaskCall:
        entry = make_entry("sd", format=ModelFormat.DIFFUSERS, capabilities=(Capability.IMAGES,))
        headers = {"Authorization": "Bearer k", "Content-Type": "application/json"}
        engine = Engine(EngineId("cpu/sd"), entry, PoolId("cpu"), True, 1, self.url, headers)
        asked: dict[str, Json] = {
            "task": "generate",
            "drawing": {"prompt": "fox", "steps": 3},
            "seeds": [5],
            "loras": [],
        }
        return TaskCall(asked | inputs, self.transport, engine, None, (self.given,), self.made)


@pytest.fixture
async def painter(tmp_path: Path) -> AsyncIterator[Painter]:
    made, app = Painter(tmp_path), web.Application()
    app.router.add_post("/v1/{path:.*}", made.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        made.url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


async def test_each_seed_is_a_request_of_its_own(painter: Painter) -> None:
    result = await draw_images(painter.call(seeds=[5, 6]))
    assert isinstance(result.value, dict)
    images = result.value["images"]
    assert isinstance(images, list)
    assert [painter.made.get(image["blob"]) for image in images] == [b"image 5", b"image 6"]  # type: ignore[index,call-overload,arg-type]
    assert images[1] == {"blob": images[1]["blob"], "media_type": "image/png", "suffix": "png", "seed": 6}  # type: ignore[index,call-overload]
    assert painter.drawings == [Drawing(prompt="fox", steps=3, seed=seed) for seed in (5, 6)]
    assert painter.paths == ["/v1/images/generations"] * 2


async def test_an_edit_takes_its_pictures_along_and_adapters_by_their_place(painter: Painter) -> None:
    image, mask, lora = (painter.given.put(data) for data in (b"image", b"mask", b"lora"))
    loras: list[Json] = [{"blob": lora, "weight": 0.5, "name": "ink"}]
    await draw_images(painter.call(task="edit", image={"blob": image}, mask={"blob": mask}, loras=loras))
    assert painter.files == [{"image": b"image", "mask": b"mask"}]
    assert painter.paths == ["/v1/images/edits"]
    (adapter,) = painter.drawings[0].loras
    assert str(adapter["path"]).startswith(str(painter.given.root))
    assert (adapter["weight"], adapter["name"]) == (0.5, "ink")


async def test_the_form_that_is_wanted(painter: Painter) -> None:
    result = await draw_images(painter.call(drawing={"prompt": "fox", "output_format": "webp", "quality": 5}))
    assert isinstance(result.value, dict)
    images = result.value["images"]
    assert isinstance(images, list)
    assert isinstance(images[0], dict)
    assert (images[0]["media_type"], images[0]["suffix"]) == ("image/webp", "webp")


async def test_what_an_engine_refuses(painter: Painter) -> None:
    painter.status = 400
    with pytest.raises(UpstreamRefused) as refused:
        await draw_images(painter.call())
    assert (refused.value.status, refused.value.param) == (400, "size")
    for status in (500, 204):
        painter.status = status
        with pytest.raises(EngineFailed):
            await draw_images(painter.call())


async def test_a_picture_that_is_gone(painter: Painter) -> None:
    with pytest.raises(PayloadGone):
        await draw_images(painter.call(task="edit", image={"blob": f"sha256:{0:064x}"}))
    assert painter.paths == []


async def test_the_answer_has_the_parts_in_order(painter: Painter) -> None:
    parts: dict[str, Json] = {f"part-{n}": {"images": [{"blob": f"b{n}", "seed": n}]} for n in (2, 1, 3)}
    result = await collect_images(painter.call(response_format="url", output_format="png", **parts))
    assert result.media_type == FILES_TYPE
    assert isinstance(result.value, bytes)
    body = orjson.loads(result.value)
    assert [item["seed"] for item in body["data"]] == [1, 2, 3]
    assert (body["response_format"], body["output_format"]) == ("url", "png")
    with pytest.raises(EngineFailed, match="part-1"):
        await collect_images(painter.call(response_format="url", output_format="png", **{"part-1": "other"}))
