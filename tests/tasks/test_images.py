"""A part's images are drawn one by one and kept; the answer has all of them in order."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import BodyPartReader, web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, PayloadGone, UpstreamRefused
from infra.types import EngineId, Json, PoolId
from tasks.images import collect_images, draw_images, stream_images
from tasks.made import FILES_TYPE
from tasks.types import TaskCall
from tests.fakes import make_entry
from tests.pictures import encoded, gradient, left_half
from tests.tasks.said import Said
from workers.engine.drawing import FRAME, Drawing
from workers.live import Engine
from workers.transport import Transport
from workers.types import Capability, ModelFormat

pytestmark = pytest.mark.enable_socket
LOOK, PICTURE = encoded(left_half()), encoded(gradient())
EVENTS: Json = {"type": "image_generation", "quality": "auto", "background": "auto"}


def names(said: Said) -> list[str]:
    """The events that were written."""
    return re.findall(r"^event: image_generation\.(\w+)$", said.text.decode(), re.MULTILINE)


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
        self.sequence: list[bytes] | None = None

    async def shown(self, request: web.Request, sequence: list[bytes]) -> web.StreamResponse:
        """The pieces of a sequence; it breaks off after one that is empty."""
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in sequence:
            if not piece:
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(piece)
        return response

    async def answer(self, request: web.Request) -> web.StreamResponse:
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
        if self.sequence is not None and self.status == 200:
            return await self.shown(request, self.sequence)
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


def framed(data: bytes, *, finished: bool = False) -> bytes:
    return FRAME.pack(finished, len(data)) + data


async def test_a_stream_passes_on_what_is_to_be_seen(painter: Painter) -> None:
    last = framed(PICTURE, finished=True)
    painter.sequence = [framed(LOOK) + framed(LOOK)[:3], framed(LOOK)[3:] + last[:7], last[7:]]
    call = painter.call(seeds=[5, 6], events=EVENTS, partial_images=3)._replace(channel=(client := Said()))
    result = await stream_images(call)
    assert names(client) == ["partial_image", "partial_image", "completed"] * 2
    assert [drawing.previews for drawing in painter.drawings] == [3, 3]
    assert (result.value, result.units) == (b"", 2)
    assert result.ending.startswith(b"data: {")


async def test_a_stream_without_looks(painter: Painter) -> None:
    painter.sequence = [PICTURE]
    call = painter.call(events=EVENTS, partial_images=0)._replace(channel=(client := Said()))
    await stream_images(call)
    assert names(client) == ["completed"]
    assert painter.drawings == [Drawing(prompt="fox", steps=3, seed=5)]


@pytest.mark.parametrize(
    ("sequence", "why", "seen"),
    [
        ([framed(LOOK), b""], "broke off its answer", 1),
        ([framed(LOOK)], "without an image", 1),
        ([framed(PICTURE, finished=True)[:-1]], "without an image", 0),
        ([framed(b"<html>", finished=True)], "no PNG", 0),
        ([FRAME.pack(False, 1 << 30), *[bytes(1 << 23)] * 9], "more than 64 MiB", 0),
    ],
)
async def test_a_stream_that_is_not_whole(painter: Painter, sequence: list[bytes], why: str, seen: int) -> None:
    painter.sequence = sequence
    call = painter.call(events=EVENTS, partial_images=2)._replace(channel=(client := Said()))
    with pytest.raises(EngineFailed, match=why):
        await stream_images(call)
    assert names(client) == ["partial_image"] * seen


async def test_what_an_engine_refuses_of_a_stream(painter: Painter) -> None:
    painter.status = 400
    call = painter.call(events=EVENTS, partial_images=2)._replace(channel=(client := Said()))
    with pytest.raises(UpstreamRefused) as refused:
        await stream_images(call)
    assert (refused.value.status, refused.value.param) == (400, "size")
    assert not client.started
