"""Images of a far service are kept as what they are, whatever they are said to be."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, PayloadGone
from infra.types import Json
from tasks.far_images import draw_far, stream_far
from tasks.images import collect_images
from tasks.types import TaskCall, TaskResult
from tests.far_service import OPENAI, PICTURE, FarService, far_engine
from tests.pictures import encoded, gradient
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket
ASKED: dict[str, Json] = {"task": "generate", "asked": {"prompt": "a fox", "quality": "hd"}, "seeds": [None]}


@pytest.fixture
def far() -> FarService:
    return FarService()


@pytest.fixture
async def call(far: FarService, tmp_path: Path) -> AsyncIterator[TaskCall]:
    transport, given = Transport(), Blobs(tmp_path / "given")
    async with TestServer(far.app(), host="127.0.0.1") as server:
        engine = far_engine(str(server.make_url("/v1")))
        yield TaskCall(ASKED, transport, engine, None, (given,), Blobs(tmp_path / "made"))
        await transport.close()


def images_of(result: TaskResult) -> list[dict[str, Json]]:
    assert isinstance(result.value, dict)
    images = result.value["images"]
    assert isinstance(images, list)
    return [image for image in images if isinstance(image, dict)]


async def test_what_a_client_has_not_said_is_not_sent(far: FarService, call: TaskCall) -> None:
    far.beside = {"revised_prompt": "a red fox", "more": 1}
    result = await draw_far(call._replace(inputs=ASKED | {"seeds": [None, None]}))
    (first, second), sent = images_of(result), {"prompt": "a fox", "quality": "hd", "n": 1, "model": "dall-e-3"}
    assert far.asked == [sent | {"response_format": "b64_json"}] * 2
    assert far.paths == ["/v1/images/generations"] * 2
    assert await call.fetch(str(first["blob"])) == PICTURE
    assert first == second
    kind = {"media_type": "image/png", "suffix": "png"}
    assert first == {"blob": first["blob"], **kind, "revised_prompt": "a red fox"}
    assert result.units == 2


@pytest.mark.parametrize(
    ("told", "wanted"),
    [({}, [5, 6]), ({"seed": 9}, [9, 9]), ({"seed": "x"}, [5, 6]), ({"seed": None}, [5, 6]), ({"seed": True}, [5, 6])],
)
async def test_seeds(far: FarService, call: TaskCall, told: dict[str, Json], wanted: list[int]) -> None:
    far.takes, far.beside = OPENAI | {"seed"}, told
    images = images_of(await draw_far(call._replace(inputs=ASKED | {"seeds": [5, 6]})))
    assert [body["seed"] for body in far.asked] == [5, 6]
    assert [image["seed"] for image in images] == wanted


@pytest.mark.parametrize(("told", "chars"), [("x" * 1_000_000, 32_000), (5, 0)])
async def test_a_revised_prompt_is_no_longer_than_a_prompt(
    far: FarService, call: TaskCall, told: Json, chars: int
) -> None:
    far.beside = {"revised_prompt": told}
    (image,) = images_of(await draw_far(call))
    assert len(str(image.get("revised_prompt", ""))) == chars


async def test_an_edit(far: FarService, call: TaskCall) -> None:
    image, mask = (call.stores[0].put(data) for data in (PICTURE, encoded(gradient(), "WEBP")))
    edit: dict[str, Json] = {"task": "edit", "image": {"blob": image}, "mask": {"blob": mask}}
    await draw_far(call._replace(inputs=ASKED | edit))
    assert far.paths == ["/v1/images/edits"]
    assert far.files == [{"image": PICTURE, "mask": encoded(gradient(), "WEBP")}]
    assert far.kinds[0]["mask"] == ("mask.webp", "image/webp")
    with pytest.raises(PayloadGone):
        await draw_far(call._replace(inputs=ASKED | edit | {"mask": {"blob": f"sha256:{0:064x}"}}))
    assert len(far.paths) == 1


async def test_a_variation(far: FarService, call: TaskCall) -> None:
    varied: dict[str, Json] = {"task": "variation", "asked": {}, "image": {"blob": call.stores[0].put(PICTURE)}}
    await draw_far(call._replace(inputs=ASKED | varied))
    assert far.paths == ["/v1/images/variations"]
    assert far.asked == [{"n": "1", "model": "dall-e-3", "response_format": "b64_json"}]
    assert far.files == [{"image": PICTURE}]


async def test_a_stream_has_each_image_when_it_has_come(far: FarService, call: TaskCall) -> None:
    sent: list[bytes] = []

    class Client:
        started = False

        async def write(self, data: bytes) -> None:
            sent.append(data)
            assert len(far.asked) == len(sent)

    events: Json = {"type": "image_generation", "quality": "auto", "background": "auto"}
    inputs = ASKED | {"events": events, "seeds": [None, None]}
    result = await stream_far(call._replace(inputs=inputs, channel=Client()))
    assert [data.partition(b"\n")[0] for data in sent] == [b"event: image_generation.completed"] * 2
    assert (result.units, result.ending[:7]) == (2, b"data: {")
    far.made = b"<html>"
    with pytest.raises(EngineFailed, match="no PNG, JPEG or WebP"):
        await stream_far(call._replace(inputs=inputs, channel=Client()))


@pytest.mark.parametrize(("form", "suffix"), [("JPEG", "jpeg"), ("WEBP", "webp")])
async def test_the_answer_says_what_has_come(far: FarService, call: TaskCall, form: str, suffix: str) -> None:
    far.made = encoded(gradient(), form)
    drawn = (await draw_far(call)).value
    assert not isinstance(drawn, bytes)
    answer = await collect_images(call._replace(inputs={"part-1": drawn, "response_format": "url"}))
    assert isinstance(answer.value, bytes)
    assert f'"output_format":"{suffix}"'.encode() in answer.value
    assert f'"media_type":"image/{suffix}"'.encode() in answer.value


@pytest.mark.parametrize("made", [b"<html>", b"GIF89a" + bytes(20), PICTURE[:12]])
async def test_what_is_no_image(far: FarService, call: TaskCall, made: bytes) -> None:
    far.made = made
    with pytest.raises(EngineFailed, match="no PNG, JPEG or WebP"):
        await draw_far(call)
