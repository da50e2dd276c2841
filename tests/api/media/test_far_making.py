"""Images and videos that a far service makes, over HTTP: they are files of this install, its refusals the client's."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.api.conftest import Front, StartFront
from tests.far_service import EDITED, FILMED, GENERATED, KEY, MP4, OPENAI, PICTURE, FarService

pytestmark = pytest.mark.enable_socket
ROW: dict[str, Any] = {
    "name": "painter",
    "served_model": "dall-e-3",
    "api_key": KEY,
    "capabilities": ["images", "video"],
}
PROMPT = {"prompt": "a fox"}


@pytest.fixture
def far() -> FarService:
    return FarService()


@pytest.fixture
async def front(far: FarService, start_front: StartFront) -> AsyncIterator[Front]:
    async with TestServer(far.app(), host="127.0.0.1") as server:
        yield await start_front([ROW | {"service_url": str(server.make_url("/"))}])


@pytest.mark.parametrize("at_an_address", [False, True])
async def test_several_images_by_addresses_of_this_install(front: Front, far: FarService, at_an_address: bool) -> None:
    far.always_url = at_an_address
    status, answer = await front.post(GENERATED, PROMPT | {"n": 3, "size": "1024x1024", "quality": "hd"})
    assert status == 200, answer
    sent = {"prompt": "a fox", "size": "1024x1024", "quality": "hd", "n": 1, "model": "dall-e-3"}
    assert far.asked == [sent | {"response_format": "b64_json"}] * 3
    assert (len(answer["data"]), answer["output_format"]) == (3, "png")
    for item in answer["data"]:
        assert item["url"].startswith(f"{front.url}/v1/files/image-")
        async with front.session.get(item["url"]) as file:
            assert (file.status, await file.read(), file.headers["content-type"]) == (200, PICTURE, "image/png")


async def test_in_base64_with_seeds_that_the_client_gave(front: Front, far: FarService) -> None:
    far.takes = OPENAI | {"seed", "steps"}
    body = PROMPT | {"model": "painter", "n": 2, "seed": 7, "steps": 4, "response_format": "b64_json"}
    status, answer = await front.post(GENERATED, body)
    assert status == 200, answer
    assert answer["data"] == [{"b64_json": base64.b64encode(PICTURE).decode(), "seed": seed} for seed in (7, 8)]
    assert sorted((each["seed"], each["steps"]) for each in far.asked) == [(7, 4), (8, 4)]


async def test_an_edit(front: Front, far: FarService) -> None:
    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("prompt", "a fox")
    form.add_field("size", "512x512")
    for name in ("image", "mask"):
        form.add_field(name, PICTURE, filename=f"../{name}.png")
    async with front.session.post(front.url + EDITED, data=form, headers=front.headers()) as answer:
        assert answer.status == 200, await answer.text()
    assert far.files == [{"image": PICTURE, "mask": PICTURE}]
    assert (far.asked[0]["size"], far.asked[0]["n"]) == ("512x512", "1")


async def test_a_video(front: Front, far: FarService) -> None:
    far.made, far.takes = MP4, OPENAI | {"num_frames", "fps"}
    status, answer = await front.post(FILMED, {"prompt": "a cat", "num_frames": 9})
    assert status == 200, answer
    assert (answer["num_frames"], answer["fps"]) == (9, far.asked[0]["fps"])
    async with front.session.get(answer["data"][0]["url"]) as file:
        assert (await file.read(), file.headers["content-type"]) == (MP4, "video/mp4")


async def test_its_refusals_are_the_client_s(front: Front, far: FarService) -> None:
    status, answer = await front.post(GENERATED, PROMPT | {"n": 2, "steps": 4})
    wanted = {"message": "Unknown parameter: 'steps'.", "type": "invalid_request_error", "param": "steps"}
    assert (status, answer) == (400, {"error": wanted | {"code": "unknown_parameter"}})
    far.status = 400
    status, answer = await front.post(GENERATED, PROMPT)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "moderation", "prompt")


async def test_what_it_cannot_have(front: Front, far: FarService) -> None:
    for path in (GENERATED, FILMED):
        status, answer = await front.post(path, PROMPT | {"loras": ["ink"]})
        assert (status, answer["error"]["param"]) == (400, "loras")
        assert "far away" in answer["error"]["message"]
    assert far.asked == []


async def test_it_fails(front: Front, far: FarService) -> None:
    far.made = b"<html>"
    status, answer = await front.post(GENERATED, PROMPT)
    assert (status, answer["error"]["code"]) == (502, "engine_failed")
    assert "no PNG, JPEG or WebP" in answer["error"]["message"]
    assert len(far.asked) == 1  # each costs money


async def test_it_is_not_there(start_front: StartFront) -> None:
    front = await start_front([ROW | {"service_url": "http://127.0.0.1:9"}])
    status, answer = await front.post(GENERATED, PROMPT)
    assert (status, answer["error"]["code"]) == (502, "service_unavailable"), answer
    assert "is not answering its health check" in answer["error"]["message"]


async def test_its_plan(front: Front) -> None:
    asked = {"endpoint": "images", "request": PROMPT | {"model": "painter", "n": 2}}
    status, planned = await front.post("/v1/plan", asked)
    assert status == 200, planned
    assert [step["task"] for step in planned["plan"]["steps"]] == ["split", "draw_far", "draw_far", "collect_images"]
