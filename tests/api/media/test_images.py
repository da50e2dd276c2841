"""Images over HTTP: what a client sends in JSON or as a form, what an engine gets of it, and what comes back."""

import asyncio
import base64
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import BodyPartReader, web

from api.media.images import drawing
from api.media.making import taken
from infra.errors import InvalidRequest
from tests.api.conftest import Front, StartFront
from tests.pictures import bomb, encoded, gradient, left_half
from workers.engine.drawing import FRAME, SEQUENCE_TYPE, Drawing

pytestmark = pytest.mark.enable_socket
PAINTER = {
    "name": "painter",
    "path": "/weights/painter",
    "format": "diffusers",
    "capabilities": ["images"],
    "weights_bytes": 1000,
}
IMAGE, MASK = encoded(gradient()), encoded(left_half())
MAKE, EDIT, VARY = "/v1/images/generations", "/v1/images/edits", "/v1/images/variations"


class Painter:
    """An engine whose images are their seed in words; where looks at them are wanted, in pictures."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.drawings: list[Drawing] = []
        self.files: list[dict[str, bytes]] = []
        self.breaks_off = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        files: dict[str, bytes] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            data = bytes(await part.read())
            if part.filename is None:
                self.drawings.append(Drawing.model_validate_json(data))
            else:
                files[str(part.name)] = data
        self.files.append(files)
        self.paths.append(request.path)
        if self.drawings[-1].previews:
            return await self.shown(request, self.drawings[-1])
        return web.Response(body=image_of(self.drawings[-1].seed), content_type="image/png")

    async def shown(self, request: web.Request, drawing: Drawing) -> web.StreamResponse:
        """As many pictures, one of them cut in two on its way."""
        response = web.StreamResponse(headers={"Content-Type": SEQUENCE_TYPE})
        await response.prepare(request)
        for _ in range(drawing.previews):
            await response.write(FRAME.pack(False, len(MASK)))
            await response.write(MASK)
        if self.breaks_off:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(FRAME.pack(True, len(IMAGE)) + IMAGE[:9])
        await response.write(IMAGE[9:])
        return response


def image_of(seed: int) -> bytes:
    return f"image {seed}".encode()


async def started(start_front: StartFront, painter: Painter | None = None, **sections: Any) -> Front:
    front = await start_front([PAINTER, {"name": "talker", "service_url": "http://127.0.0.1:9"}], **sections)
    front.children.answer = (painter or Painter()).answer
    return front


async def send(front: Front, fields: dict[str, str], path: str = EDIT, **files: bytes) -> tuple[int, Any]:
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        form.add_field(name, value)
    for name, data in files.items():
        form.add_field(name, data, filename=f"../{name}.png")
    async with front.session.post(front.url + path, data=form, headers=front.headers()) as answer:
        return answer.status, orjson.loads(await answer.read())


async def test_several_images_each_with_its_seed(start_front: StartFront) -> None:
    painter = Painter()
    front = await started(start_front, painter)
    body = {"model": "painter", "prompt": "a fox", "n": 3, "seed": 7, "size": "64x128", "response_format": "b64_json"}
    status, answer = await front.post(MAKE, body | {"steps": 2, "guidance_scale": 3, "quality": "hd", "user": "me"})
    assert status == 200, answer
    assert [base64.b64decode(item["b64_json"]) for item in answer["data"]] == [image_of(seed) for seed in (7, 8, 9)]
    assert [item["seed"] for item in answer["data"]] == [7, 8, 9]
    assert set(answer) == {"created", "data", "output_format"}
    wanted = Drawing(prompt="a fox", seed=7, width=64, height=128, steps=2, guidance_scale=3.0)
    assert sorted(painter.drawings, key=lambda drawing: drawing.seed)[0] == wanted


async def test_a_seed_is_drawn_by_lot_and_told(start_front: StartFront) -> None:
    front = await started(start_front)
    body = {"prompt": "a fox", "response_format": "b64_json"}  # the model is the one that there is
    seeds = [(await front.post(MAKE, body))[1]["data"][0]["seed"] for _ in range(3)]
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**32 for seed in seeds)


async def test_an_address_is_the_default_and_opens_without_a_key(start_front: StartFront) -> None:
    front = await started(start_front)
    _status, answer = await front.post(MAKE, {"prompt": "a fox", "seed": 1})
    url = answer["data"][0]["url"]
    assert url.startswith(f"{front.url}/v1/files/image-")
    async with front.session.get(url) as file:
        assert (file.status, await file.read(), file.headers["content-type"]) == (200, image_of(1), "image/png")
    bare = url.partition("?")[0]
    for headers, wanted in (({}, 401), (front.headers("node"), 404), (front.headers(), 200)):
        async with front.session.get(bare, headers=headers) as file:
            assert file.status == wanted, await file.read()


@pytest.mark.parametrize("record", ["all", "none"])
async def test_an_edit_as_a_form_and_nothing_of_it_stays_that_is_not_kept(start_front: StartFront, record: str) -> None:
    painter = Painter()
    front = await started(start_front, painter, record={"payloads": record})
    fields = {"model": "painter", "prompt": "a fox", "n": "2", "seed": "5", "strength": "0.5", "stream": "false"}
    status, answer = await send(front, fields | {"response_format": "b64_json"}, image=IMAGE, mask=MASK)
    assert status == 200, answer
    assert painter.files == [{"image": IMAGE, "mask": MASK}] * 2
    assert painter.drawings[0].strength == 0.5
    folder = "payloads" if record == "all" else "passing"
    for _ in range(200):
        left = [path for path in front.settings.at(folder).rglob("*") if path.is_file() and path.read_bytes() == IMAGE]
        if len(left) == (record == "all"):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(left)


async def test_an_edit_in_json(start_front: StartFront) -> None:
    painter = Painter()
    front = await started(start_front, painter)
    data = base64.b64encode(IMAGE).decode()
    for image in (data, f"data:image/png;base64,{data}", {"data": data, "filename": "x.png"}):
        status, answer = await front.post(EDIT, {"prompt": "a fox", "image": image, "seed": 1})
        assert status == 200, answer
    assert painter.files == [{"image": IMAGE}] * 3
    for url in ("http://127.0.0.1:1/x.png", "http://169.254.169.254/x", "file:///etc/passwd"):
        status, answer = await front.post(EDIT, {"prompt": "a fox", "image": url})
        assert status in (400, 403), answer


async def test_variations(start_front: StartFront) -> None:
    painter = Painter()
    front = await started(start_front, painter)
    fields = {"model": "painter", "n": "2", "seed": "5", "size": "256x256", "response_format": "b64_json"}
    status, answer = await send(front, fields, VARY, image=IMAGE)
    assert status == 200, answer
    assert [item["seed"] for item in answer["data"]] == [5, 6]
    assert painter.paths == ["/v1/images/variations"] * 2
    assert painter.files == [{"image": IMAGE}] * 2
    assert (painter.drawings[0].prompt, painter.drawings[0].width) == ("", 256)
    status, answer = await front.post(VARY, {"image": base64.b64encode(IMAGE).decode()})
    assert status == 200, answer
    for more, param in (({"prompt": "a fox"}, "prompt"), ({"stream": "true"}, "stream")):
        status, answer = await send(front, more, VARY, image=IMAGE)
        assert (status, answer["error"]["param"]) == (400, param)
    status, answer = await send(front, {}, VARY, image=IMAGE, mask=MASK)
    assert (status, answer["error"]["param"]) == (400, "mask")
    status, answer = await send(front, {"n": "1"}, VARY)
    assert (status, answer["error"]["code"]) == (400, "no_image")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no prompt": ({}, "prompt"),
    "an empty prompt": ({"prompt": ""}, "prompt"),
    "a prompt without end": ({"prompt": "x" * 32_001}, "prompt"),
    "none": ({"n": 0}, "n"),
    "ten thousand": ({"n": 10_000}, "n"),
    "a size of no sense": ({"size": "large"}, "size"),
    "an odd size": ({"size": "65x64"}, "size"),
    "a large size": ({"size": "4096x4096"}, "size"),
    "many steps": ({"steps": 201}, "steps"),
    "no steps": ({"steps": 0}, "steps"),
    "a seed below zero": ({"seed": -1}, "seed"),
    "a last seed that is too large": ({"seed": 2**53 - 1, "n": 2}, "seed"),
    "a stream of addresses": ({"stream": True, "response_format": "url"}, "response_format"),
    "many looks": ({"stream": True, "partial_images": 4}, "partial_images"),
    "no background": ({"background": "transparent"}, "background"),
    "a field of nobody's": ({"steops": 3}, "steops"),
    "an unknown form": ({"output_format": "gif"}, "output_format"),
    "an edit's field": ({"strength": 0.5}, "strength"),
    "many adapters": ({"loras": ["a"] * 9}, "loras"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_request_is_told(name: str) -> None:
    more, param = BAD[name]
    body = ({} if name == "no prompt" else {"prompt": "a fox"}) | more
    with pytest.raises(InvalidRequest) as refused:
        taken("application/json", orjson.dumps(body), drawing("generate"))
    assert refused.value.param == param


async def test_bad_pictures_and_forms_are_told(start_front: StartFront) -> None:
    painter = Painter()
    front = await started(start_front, painter)
    prompt = {"prompt": "a fox"}
    for wanted, fields, files in (
        ("unsupported_type", prompt, {"image": b"#EXTM3U\nfile:///etc/passwd\n"}),
        ("unsupported_type", prompt, {"image": b""}),
        ("unsupported_type", prompt, {"image": IMAGE, "mask": encoded(left_half(), "GIF")}),
        ("too_many_pixels", prompt, {"image": bomb()}),
        ("invalid_request", prompt, {"image": IMAGE, "mask": encoded(left_half(32, 32))}),
        ("invalid_request", prompt, {"image": IMAGE, "other": IMAGE}),
        ("no_image", prompt, {}),
        ("invalid_request", {}, {"image": IMAGE}),
        ("invalid_request", prompt | {"n": "many"}, {"image": IMAGE}),
        ("invalid_request", prompt | {"strength": "much"}, {"image": IMAGE}),
        ("invalid_request", prompt | {"loras": "[{"}, {"image": IMAGE}),
    ):
        status, answer = await send(front, fields, EDIT, **files)
        assert (status, answer["error"]["code"]) == (400, wanted), answer
    assert painter.drawings == []


def test_an_image_may_be_called_a_list_but_is_one() -> None:
    form = b'--b\r\ncontent-disposition: form-data; name="image[]"; filename="a"\r\n\r\nx\r\n'
    text = b'--b\r\ncontent-disposition: form-data; name="prompt"\r\n\r\na fox\r\n'
    kind = "multipart/form-data; boundary=b"
    assert set(taken(kind, form + text + b"--b--\r\n", drawing("edit")).pictures) == {"image"}
    with pytest.raises(InvalidRequest, match="image is one picture"):
        taken(kind, form + form + text + b"--b--\r\n", drawing("edit"))


def test_a_form_may_name_a_picture_that_lies_elsewhere() -> None:
    """Beside a file or alone: it is taken as in JSON, and never left out in silence."""
    form = '--b\r\ncontent-disposition: form-data; name="image"; filename="a"\r\n\r\nx\r\n'
    for name, value in (("prompt", "a fox"), ("mask", "https://example.org/mask.png")):
        form += f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    pictures = taken("multipart/form-data; boundary=b", f"{form}--b--\r\n".encode(), drawing("edit")).pictures
    assert {name: given.url for name, given in pictures.items()} == {
        "image": None,
        "mask": "https://example.org/mask.png",
    }


async def test_a_model_that_draws_nothing_or_far_away(start_front: StartFront) -> None:
    front = await started(start_front)
    status, answer = await front.post(MAKE, {"prompt": "a fox", "model": "talker"})
    assert (status, answer["error"]["code"]) == (400, "unsupported_model")
    status, answer = await front.post(MAKE, {"prompt": "a fox", "model": "nobody"})
    assert status == 404


async def test_a_plan_shows_the_images(start_front: StartFront) -> None:
    front = await started(start_front)
    asked = {"endpoint": "images", "request": {"model": "painter", "prompt": "a fox", "n": 2}}
    status, planned = await front.post("/v1/plan", asked)
    assert status == 200, planned
    assert [step["id"] for step in planned["plan"]["steps"]] == ["split", "part-1", "part-2", "merge"]


async def test_the_methods_and_the_documents(start_front: StartFront) -> None:
    front = await started(start_front)
    status, _answer = await front.get(MAKE)
    assert status == 405
    _status, document = await front.get("/openapi.json")
    for path in (MAKE, EDIT, VARY):
        assert set(document["paths"][path]["post"]["requestBody"]["content"]) == {
            "application/json",
            "multipart/form-data",
        }
