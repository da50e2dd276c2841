"""Videos over HTTP on a whole front, with an engine that answers at once: what comes in, and what of it stays."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import BodyPartReader, web

from api.media.making import taken
from api.media.video import FILMING
from infra.errors import InvalidRequest
from tests.api.conftest import Front, StartFront
from tests.documents import drawn, encoded

pytestmark = pytest.mark.enable_socket
PATH = "/v1/video/generations"
BODY: dict[str, Any] = {"model": "wan", "prompt": "a cat", "size": "32x32", "num_frames": 9, "seed": 5}
IMAGE = encoded(drawn(["A"], width=64))


class Films:
    """Makes a video of what it is asked for: the question itself."""

    def __init__(self) -> None:
        self.images: list[bytes] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts: dict[str, bytes] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            parts[str(part.name)] = bytes(await part.read())
        self.images += [parts["image"]] if "image" in parts else []
        return web.Response(body=parts["shot"], content_type="video/mp4")


async def started(start_front: StartFront, folder: Path, films: Films, **sections: Any) -> Front:
    row = {"name": "wan", "format": "diffusers", "capabilities": ["video"], "weights_bytes": 9, "path": str(folder)}
    front = await start_front([row], **sections)
    front.children.answer = films.answer
    return front


def shots(body: Any) -> list[dict[str, Any]]:
    return [json.loads(base64.b64decode(one["b64_mp4"])) for one in body["data"]]


def kept(front: Front, folder: str) -> list[bytes]:
    return [path.read_bytes() for path in front.settings.at(folder).rglob("*") if path.is_file()]


async def test_each_video_has_its_own_seed(start_front: StartFront, tmp_path: Path) -> None:
    front = await started(start_front, tmp_path, Films())
    status, body = await front.post(PATH, BODY | {"n": 3, "response_format": "b64_mp4", "fps": 8})
    assert status == 200, body
    assert [shot["seed"] for shot in shots(body)] == [one["seed"] for one in body["data"]] == [5, 6, 7]
    assert shots(body)[0] == {
        "prompt": "a cat",
        "width": 32,
        "height": 32,
        "num_frames": 9,
        "fps": 8.0,
        "seed": 5,
        "loras": [],
    }
    assert (body["num_frames"], body["fps"]) == (9, 8)
    assert set(body["data"][0]) == {"b64_mp4", "seed"}


async def test_an_address_is_the_key_s_file(start_front: StartFront, tmp_path: Path) -> None:
    front = await started(start_front, tmp_path, Films())
    status, body = await front.post(PATH, BODY)
    assert status == 200, body
    (one,) = body["data"]
    assert one["url"].startswith(f"{front.url}/v1/files/video-")
    async with front.session.get(one["url"]) as answer:
        assert (answer.status, answer.content_type) == (200, "video/mp4")
        assert json.loads(await answer.read())["seed"] == 5


@pytest.mark.parametrize("way", ["base64", "data URL", "form"])
async def test_an_image_to_start_from(start_front: StartFront, tmp_path: Path, way: str) -> None:
    films = Films()
    front = await started(start_front, tmp_path, films, record={"payloads": "none"})
    text = base64.b64encode(IMAGE).decode()
    if way == "form":
        form = aiohttp.FormData(quote_fields=False)
        for name, value in BODY.items():
            form.add_field(name, str(value))
        form.add_field("image", IMAGE, filename="../a.png", content_type="image/png")
        async with front.session.post(front.url + PATH, data=form, headers=front.headers()) as answer:
            assert answer.status == 200, await answer.text()
    else:
        image = text if way == "base64" else f"data:image/png;base64,{text}"
        status, body = await front.post(PATH, BODY | {"image": image, "mode": "i2v"})
        assert status == 200, body
    assert films.images == [IMAGE]
    async with asyncio.timeout(5):  # it goes in the moment in which the answer is there
        while IMAGE in kept(front, "passing"):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"n": 0}, 400, "n"),
        ({"image": base64.b64encode(b"text").decode()}, 400, "image"),
        ({"image": "http://10.0.0.1/a.png"}, 403, None),
        ({"model": "nobody"}, 404, "model"),
        ({"loras": [{"path": "/etc/passwd"}]}, 400, "loras"),
    ],
)
async def test_what_is_wrong_is_named(
    start_front: StartFront, tmp_path: Path, fields: dict[str, Any], status: int, param: str | None
) -> None:
    front = await started(start_front, tmp_path, Films())
    got, body = await front.post(PATH, BODY | fields)
    assert (got, set(body)) == (status, {"error"}), body
    assert param is None or str(body["error"]["param"]).startswith(param)
    assert not kept(front, "payloads")


async def test_an_install_without_such_a_model(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await front.post(PATH, {"prompt": "a cat"})
    assert status == 501
    assert "torch" in body["error"]["message"]
    status, body = await front.post(PATH, BODY | {"model": "tiny"})
    assert (status, body["error"]["param"]) == (400, "model")


async def test_a_plan_shows_the_rows(start_front: StartFront, tmp_path: Path) -> None:
    front = await started(start_front, tmp_path, Films())
    status, body = await front.post("/v1/plan", {"endpoint": "video", "request": BODY | {"n": 2}})
    assert status == 200, body
    assert [step["id"] for step in body["plan"]["steps"]] == ["video-1", "video-2", "collect"]


def test_a_form_with_a_file_too_many() -> None:
    head = 'Content-Disposition: form-data; name="{}"; filename="a"\r\n\r\nx\r\n'
    for names, why in ((("video",), "no file that is taken here"), (("image", "image"), "image is one picture")):
        raw = "".join(f"--b\r\n{head.format(name)}" for name in names) + "--b--\r\n"
        with pytest.raises(InvalidRequest, match=why):
            taken("multipart/form-data; boundary=b", raw.encode(), FILMING)


def test_an_image_is_no_path_of_ours() -> None:
    for image in ({"path": "/etc/passwd"}, {"data": "AA==", "url": "http://x/a.png"}, 5, "/etc/passwd.."):
        with pytest.raises(InvalidRequest) as refused:
            taken("application/json", json.dumps(BODY | {"image": image}).encode(), FILMING)
        assert str(refused.value.param).startswith("image")
