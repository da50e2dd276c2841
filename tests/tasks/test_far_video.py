"""A video of another install, which is kept here."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed
from infra.types import Json
from tasks.far_video import film_far
from tasks.types import TaskCall
from tests.far_service import MP4, PICTURE, FarService, far_engine
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket
ASKED: dict[str, Json] = {"prompt": "a cat", "num_frames": 9, "fps": 8.0}


@pytest.fixture
def far() -> FarService:
    made = FarService(MP4)
    made.takes |= {"num_frames", "fps", "seed"}
    return made


@pytest.fixture
async def call(far: FarService, tmp_path: Path) -> AsyncIterator[TaskCall]:
    transport, kept = Transport(), Blobs(tmp_path / "kept")
    async with TestServer(far.app(), host="127.0.0.1") as server:
        engine = far_engine(str(server.make_url("/v1")))
        yield TaskCall({"asked": ASKED}, transport, engine, None, (kept,), kept)
        await transport.close()


@pytest.mark.parametrize(
    ("seed", "told", "wanted"),
    [(None, None, None), (3, None, 3), (None, 7, 7), (3, "x", 3), (3, True, 3), (None, "x", None)],
)
async def test_from_a_text(far: FarService, call: TaskCall, seed: Json, told: Json, wanted: Json) -> None:
    asked = ASKED if seed is None else ASKED | {"seed": seed}
    far.beside = {} if told is None else {"seed": told}
    video = (await film_far(call._replace(inputs={"asked": asked}))).value
    assert isinstance(video, dict)
    assert await call.fetch(str(video["blob"])) == MP4
    assert (video["media_type"], video["suffix"], video.get("seed")) == ("video/mp4", "mp4", wanted)
    assert far.asked == [asked | {"n": 1, "model": "dall-e-3", "response_format": "b64_mp4"}]
    assert far.paths == ["/v1/video/generations"]


async def test_from_an_image(far: FarService, call: TaskCall) -> None:
    far.always_url = True
    image: Json = {"blob": call.stores[0].put(PICTURE)}
    await film_far(call._replace(inputs={"asked": ASKED, "image": image}))
    assert far.files == [{"image": PICTURE}]
    assert (far.asked[0]["num_frames"], far.asked[0]["fps"]) == ("9", "8.0")


async def test_what_is_no_video(far: FarService, call: TaskCall) -> None:
    far.made = PICTURE
    with pytest.raises(EngineFailed, match="no MP4"):
        await film_far(call)
