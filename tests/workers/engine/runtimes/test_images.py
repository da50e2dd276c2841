"""What the runtime draws is, bit for bit, what diffusers draws when it is called directly; for each family."""

import inspect
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from infra.errors import InvalidRequest
from infra.types import Json
from tests.fakes import make_entry
from tests.pictures import bomb, encoded, gradient, left_half, pixels
from tests.tiny_diffusers import FAMILIES, FORGIVEN
from tests.workers.engine.launches import launch_of
from workers.engine.drawing import FRAME, Drawing
from workers.engine.runtimes.protocol import Abandoned, Ask, Handler, Reply, Upload
from workers.types import Capability, ModelFormat

pytestmark = [pytest.mark.slow, *(pytest.mark.filterwarnings(warning) for warning in FORGIVEN)]

WIDTH, HEIGHT, SEED, STEPS = 96, 64, 7, 3
BASE: dict[str, Json] = {"prompt": "a red fox", "seed": SEED, "steps": STEPS, "width": WIDTH, "height": HEIGHT}
IMAGE = Upload("image", "in.png", "image/png", encoded(gradient(WIDTH, HEIGHT)))
MASK = Upload("mask", "mask.png", "image/png", encoded(left_half(WIDTH, HEIGHT)))
GENERATE, EDIT, VARY = "/images/generations", "/images/edits", "/images/variations"


class Family:
    """One kind of pipeline: in our runtime, and called directly."""

    def __init__(self, folder: Path) -> None:
        import torch

        from workers.engine.runtimes.images import Images

        torch.set_num_threads(1)
        entry = make_entry(path=folder, format=ModelFormat.DIFFUSERS, capabilities=(Capability.IMAGES,))
        runtime = Images()
        runtime.load(launch_of(entry))
        self.folder = folder
        self.routes: Mapping[str, Handler] = runtime.routes()

    def drawn(self, path: str, *files: Upload, **more: Json) -> bytes:
        return self.asked(ask_of(*files, **more), path)

    def asked(self, ask: Ask, path: str = GENERATE) -> bytes:
        reply: Reply = self.routes[path](ask)
        assert isinstance(reply.body, bytes)
        return reply.body

    def sequence(self, path: str, *files: Upload, **more: Json) -> list[bytes]:
        """The images of an answer that has several."""
        reply: Reply = self.routes[path](ask_of(*files, **more))
        assert not isinstance(reply.body, bytes)
        assert reply.media_type == "application/vnd.coderai.images"
        pieces = list(reply.body)
        heads = [FRAME.unpack_from(piece) for piece in pieces]
        assert heads == [(piece is pieces[-1], len(piece) - FRAME.size) for piece in pieces]
        return [piece[FRAME.size :] for piece in pieces]

    def direct(self, kind: str, seed: int = SEED, **more: Any) -> bytes:
        """By an AutoPipeline that is loaded anew."""
        import diffusers
        import torch

        pipe = getattr(diffusers, kind).from_pretrained(self.folder)
        pipe.set_progress_bar_config(disable=True)
        known = inspect.signature(pipe.__call__).parameters
        size = {"width": WIDTH, "height": HEIGHT} if "height" in known else {}
        generator = torch.Generator("cpu").manual_seed(seed)
        drawn: Image.Image = pipe(
            prompt="a red fox", num_inference_steps=STEPS, generator=generator, **size, **more
        ).images[0]
        return drawn.tobytes()


def ask_of(*files: Upload, **more: Json) -> Ask:
    asked = {name: value for name, value in (BASE | more).items() if value is not None}
    return Ask({"drawing": [Drawing.model_validate(asked).model_dump_json(exclude_none=True)]}, files)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(FAMILIES[request.param](tmp_path_factory.mktemp("pipeline") / request.param))


@pytest.fixture(scope="module")
def sd15(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(FAMILIES["sd15"](tmp_path_factory.mktemp("pipeline") / "sd15"))


def test_an_image_of_a_text(family: Family) -> None:
    drawn = family.drawn(GENERATE)
    assert pixels(drawn) == family.direct("AutoPipelineForText2Image")
    assert pixels(family.drawn(GENERATE, seed=SEED + 1)) == family.direct("AutoPipelineForText2Image", SEED + 1)
    assert drawn != family.drawn(GENERATE, prompt="a blue whale")
    assert drawn != family.drawn(GENERATE, guidance_scale=1.5)


def test_an_image_of_an_image(family: Family) -> None:
    drawn = family.drawn(EDIT, IMAGE, strength=0.7)
    assert pixels(drawn) == family.direct("AutoPipelineForImage2Image", image=gradient(WIDTH, HEIGHT), strength=0.7)


def test_an_image_within_a_mask(family: Family) -> None:
    drawn = family.drawn(EDIT, IMAGE, MASK, strength=0.7)
    image, mask = gradient(WIDTH, HEIGHT), left_half(WIDTH, HEIGHT)
    assert pixels(drawn) == family.direct("AutoPipelineForInpainting", image=image, mask_image=mask, strength=0.7)


@pytest.mark.parametrize(("path", "files"), [(GENERATE, ()), (EDIT, (IMAGE,)), (EDIT, (IMAGE, MASK))])
def test_what_is_shown_on_the_way_changes_nothing(family: Family, path: str, files: tuple[Upload, ...]) -> None:
    more: dict[str, Json] = {"steps": 6} | ({"strength": 0.7} if files else {})
    *previews, last = family.sequence(path, *files, previews=2, **more)
    assert last == family.drawn(path, *files, **more)
    assert len(previews) == 2
    assert {len(pixels(each)) for each in previews} == {WIDTH * HEIGHT * 3}
    assert len({*previews, last}) == 3


def test_what_is_shown_without_a_size_has_that_of_the_image(family: Family) -> None:
    if family.folder.name in ("flux", "z-image"):
        pytest.skip("their usual size takes minutes to be drawn here")
    preview, last = family.sequence(GENERATE, previews=1, steps=2, width=None, height=None)
    assert len(pixels(preview)) == len(pixels(last))


def test_a_variation_has_no_prompt(family: Family) -> None:
    asked: dict[str, Json] = {"prompt": "", "strength": 0.7}
    drawn = family.drawn(VARY, IMAGE, **asked)
    assert drawn == family.drawn(EDIT, IMAGE, **asked)
    assert drawn != family.drawn(VARY, IMAGE, **asked, seed=SEED + 1)
    with pytest.raises(InvalidRequest, match="the image to start from"):
        family.drawn(VARY, **asked)


def test_the_usual_strength_may_leave_no_step(family: Family) -> None:
    with pytest.raises(InvalidRequest) as refused:
        family.drawn(VARY, IMAGE, prompt="", steps=1)
    assert refused.value.param == "strength"


def test_one_request_leaves_nothing_to_the_next(family: Family) -> None:
    before = family.drawn(GENERATE)
    family.drawn(EDIT, IMAGE, MASK, strength=0.5)
    family.drawn(GENERATE, steps=5, width=64)
    assert family.drawn(GENERATE) == before


def test_openai_s_masks_are_transparent_where_is_to_be_drawn(sd15: Family) -> None:
    transparent = Image.new("RGBA", (WIDTH, HEIGHT), "black")
    transparent.paste((0, 0, 0, 0), (0, 0, WIDTH // 2, HEIGHT))
    mask = Upload("mask", "mask.png", "image/png", encoded(transparent))
    assert sd15.drawn(EDIT, IMAGE, mask) == sd15.drawn(EDIT, IMAGE, MASK)


def test_an_edit_has_the_size_of_its_image_unless_another_is_wanted(sd15: Family) -> None:
    odd = Upload("image", "in.png", "image/png", encoded(gradient(101, 70)))
    kept = {"width": None, "height": None}
    assert len(pixels(sd15.drawn(EDIT, odd, **kept))) == 96 * 64 * 3
    assert len(pixels(sd15.drawn(EDIT, odd))) == WIDTH * HEIGHT * 3
    assert len(pixels(sd15.drawn(EDIT, IMAGE, MASK, width=128))) == 128 * HEIGHT * 3


@pytest.mark.parametrize(("form", "start"), [("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF"), ("png", b"\x89PNG")])
def test_the_form_that_is_wanted(sd15: Family, form: str, start: bytes) -> None:
    reply = sd15.routes[GENERATE](ask_of(output_format=form, quality=60))
    assert isinstance(reply.body, bytes)
    assert reply.body.startswith(start)
    assert reply.media_type == f"image/{form}"


def test_how_far_it_is_and_an_end_between_two_steps(sd15: Family) -> None:
    ask = ask_of(steps=4)
    sd15.asked(ask)
    assert ask.progress.reached().phase == "encoding"
    gone = threading.Event()
    told: list[tuple[int, int]] = []
    ask = Ask(ask.body, (), gone)

    def tell(phase: str, step: int, total: int) -> None:
        if phase == "denoising":
            told.append((step, total))
            gone.set()

    ask.progress.tell = tell  # type: ignore[method-assign]
    with pytest.raises(Abandoned):
        sd15.asked(ask)
    assert told == [(1, 5)]  # PNDM does one step more


def test_a_sequence_ends_between_two_steps_once_its_client_has_left(sd15: Family) -> None:
    ask = ask_of(previews=3, steps=8)
    reply: Reply = sd15.routes[GENERATE](ask)
    assert not isinstance(reply.body, bytes)
    next(reply.body)
    ask.gone.set()
    with pytest.raises(Abandoned):
        list(reply.body)
    assert sd15.drawn(GENERATE, steps=1)


def test_what_cannot_be_drawn_is_told_before_a_sequence_begins(sd15: Family) -> None:
    with pytest.raises(InvalidRequest):
        sd15.routes[GENERATE](ask_of(previews=1, true_cfg_scale=3.0))
    lora: Json = [{"path": "/nowhere.safetensors", "weight": 1.0, "name": "ink"}]
    reply: Reply = sd15.routes[GENERATE](ask_of(previews=1, loras=lora))
    with pytest.raises(InvalidRequest):
        next(iter(reply.body))


@pytest.mark.parametrize(
    ("more", "files", "param"),
    [
        ({"strength": 0.1}, (IMAGE,), "strength"),
        ({"strength": 0.001, "steps": None}, (IMAGE,), "strength"),
        ({"true_cfg_scale": 3.0}, (IMAGE,), "true_cfg_scale"),
        ({}, (), "image"),
        ({}, (Upload("image", "a", "", b"no picture"),), "image"),
        ({}, (Upload("image", "a", "", IMAGE.data[:90]),), "image"),
        ({}, (Upload("image", "a", "", bomb()),), "image"),
        ({}, (Upload("image", "a", "", encoded(gradient(), "BMP")),), "image"),
        ({}, (IMAGE, Upload("mask", "m", "", encoded(left_half(64, 64)))), "mask"),
        ({"width": None, "height": None}, (Upload("image", "a", "", encoded(gradient(3000, 3000))),), "size"),
        ({"width": None, "height": None}, (Upload("image", "a", "", encoded(gradient(5000, 8))),), "size"),
        ({"width": None, "height": None}, (Upload("image", "a", "", encoded(gradient(1, 1))),), "size"),
    ],
)
def test_what_cannot_be_drawn_is_told(
    sd15: Family, more: dict[str, Json], files: tuple[Upload, ...], param: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        sd15.drawn(EDIT, *files, **more)
    assert refused.value.param == param


def test_what_one_family_wants_and_another_does_not_know(family: Family) -> None:
    name = family.folder.name
    if name == "flux":
        with pytest.raises(InvalidRequest, match="true_cfg_scale above 1"):
            family.drawn(GENERATE, negative_prompt="fog")
        assert family.drawn(GENERATE, negative_prompt="fog", true_cfg_scale=2.0) != family.drawn(GENERATE)
    else:
        assert family.drawn(GENERATE, negative_prompt="fog") != family.drawn(GENERATE)
    if name in ("flux", "z-image"):
        with pytest.raises(InvalidRequest, match="multiples of 16"):
            family.drawn(GENERATE, width=72)
    else:
        assert len(pixels(family.drawn(GENERATE, width=72))) == 72 * HEIGHT * 3


def test_a_request_that_is_none(sd15: Family) -> None:
    for text in ("", "{}", '{"prompt": "x", "seed": -1}'):
        with pytest.raises(InvalidRequest):
            sd15.asked(Ask({"drawing": [text]}))
    with pytest.raises(InvalidRequest):
        sd15.asked(Ask({}))
