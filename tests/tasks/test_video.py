"""A video from an engine, kept; and the answer that names all of them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import BodyPartReader, web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, PayloadGone, UpstreamRefused
from infra.types import EngineId, Json, PoolId, RunId
from tasks.types import TaskCall
from tasks.video import collect_videos, film_video
from tests.fakes import make_entry
from workers.live import Engine
from workers.transport import Transport
from workers.wire import Mark

pytestmark = pytest.mark.enable_socket
SHOT: dict[str, Json] = {"prompt": "a cat", "width": 32, "height": 32, "num_frames": 9, "seed": 3}


class Far:
    """An engine that answers as it is told, and keeps the forms that it gets."""

    def __init__(self, store: Blobs) -> None:
        self.status, self.answer = 200, b"film"
        self.forms: list[dict[str, bytes]] = []
        self.marks: list[str] = []
        headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
        self.engine = Engine(EngineId("cpu/m"), make_entry(), PoolId("cpu"), True, 1, headers=headers)
        self.transport = Transport()
        self.store = store

    async def handle(self, request: web.Request) -> web.Response:
        self.marks.append(f"{request.headers['X-Coderai-Run']} {request.headers['X-Coderai-Step']}")
        parts: dict[str, bytes] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            parts[str(part.name)] = bytes(await part.read())
        self.forms.append(parts)
        return web.Response(status=self.status, body=self.answer)

    def call(self, **inputs: Json) -> TaskCall:
        asked: dict[str, Json] = {"shot": SHOT, "loras": [], **inputs}
        mark = Mark(RunId("run"), "video-1")
        return TaskCall(asked, self.transport, self.engine, None, (self.store,), self.store, mark)


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Far]:
    made = Far(Blobs(tmp_path / "kept"))
    app = web.Application()
    app.router.add_post("/v1/video/generations", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.engine.base_url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


async def test_the_engine_gets_a_form_and_its_video_is_kept(far: Far) -> None:
    image = far.store.put(b"picture")
    result = await film_video(far.call(image={"blob": image}))
    assert isinstance(result.value, dict)
    assert far.store.get(str(result.value.pop("blob"))) == b"film"
    assert result.value == {"media_type": "video/mp4", "suffix": "mp4", "seed": 3}
    (form,) = far.forms
    assert form["image"] == b"picture"
    assert json.loads(form["shot"]) == {**SHOT, "fps": 16.0, "loras": []}
    assert far.marks == ["run video-1"]


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (400, b'{"error": {"message": "width is wrong", "param": "width"}}', UpstreamRefused),
        (500, b"{}", EngineFailed),
        (200, b"", EngineFailed),
    ],
)
async def test_an_engine_without_a_video(far: Far, status: int, answer: bytes, error: type[Exception]) -> None:
    far.status, far.answer = status, answer
    with pytest.raises(error):
        await film_video(far.call())


async def test_an_image_that_is_gone(far: Far) -> None:
    with pytest.raises(PayloadGone):
        await film_video(far.call(image={"blob": f"sha256:{'0' * 64}"}))


async def test_all_in_order(far: Far) -> None:
    videos: list[Any] = [{"blob": f"b{number}", "seed": number} for number in range(1, 12)]
    inputs = {f"video-{number}": video for number, video in enumerate(videos, 1)}
    call = TaskCall({**inputs, "response_format": "url", "num_frames": 9, "fps": 8.0}, far.transport)
    result = await collect_videos(call)
    assert result.media_type == "application/vnd.coderai.files+json"
    assert isinstance(result.value, bytes)
    body = json.loads(result.value)
    assert body.pop("created") > 0
    assert body == {"data": videos, "response_format": "url", "num_frames": 9, "fps": 8.0}
    with pytest.raises(EngineFailed, match="video-2 of the request"):
        await collect_videos(call._replace(inputs={**call.inputs, "video-2": "film"}))
