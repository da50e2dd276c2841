"""Videos of tiny Wan pipelines: what a direct call of diffusers gives, frame for frame; and as a file."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.errors import InvalidRequest, LoadFailed
from tests.documents import drawn, encoded
from tests.fakes import make_entry
from tests.tiny_wan import write_tiny_wan, write_tiny_wan_i2v, write_tiny_wan_ti2v
from tests.workers.engine.launches import launch_of
from workers.engine.filming import Shot
from workers.engine.runtimes.protocol import Abandoned, Ask, Upload
from workers.types import Capability, ModelFormat

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch_dtype` is deprecated"),
]
SHOT: dict[str, Any] = {"prompt": "a cat walks", "width": 32, "height": 48, "num_frames": 9, "steps": 3, "seed": 7}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Callable[[Path], Path]], Any]]:
    """The runtime with a pipeline that is written for it, and the pipeline's folder."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def loaded(write: Callable[[Path], Path]) -> Any:
        from workers.engine.runtimes.video import Video

        folder = write(tmp_path_factory.mktemp("wan"))
        runtime = Video()
        entry = make_entry(format=ModelFormat.DIFFUSERS, capabilities=(Capability.VIDEO,), path=folder)
        runtime.load(launch_of(entry))
        return runtime, folder

    yield loaded
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def wan(load: Callable[[Callable[[Path], Path]], Any]) -> Any:
    return load(write_tiny_wan)


def ask_of(image: bytes | None = None, **more: Any) -> Ask:
    files = () if image is None else (Upload("image", "a.png", "image/png", image),)
    return Ask({"shot": [Shot(**SHOT | more).model_dump_json()]}, files)


def direct(kind: str, folder: Path, seed: int, **more: Any) -> Any:
    """The frames that diffusers itself gives."""
    import diffusers
    import torch

    pipe = getattr(diffusers, kind).from_pretrained(folder, dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    with torch.no_grad():
        return pipe(
            prompt=SHOT["prompt"],
            width=32,
            height=48,
            num_frames=9,
            num_inference_steps=3,
            generator=torch.Generator("cpu").manual_seed(seed),
            output_type="np",
            **more,
        ).frames[0]


def test_the_frames_are_diffusers_own(wan: Any) -> None:
    import numpy as np

    runtime, folder = wan
    guided = {"guidance_scale": 3.0, "guidance_scale_2": 2.0, "negative_prompt": "blurry"}
    cases: tuple[tuple[int, dict[str, Any]], ...] = ((7, {}), (8, guided))
    for seed, more in cases:
        ask = ask_of()
        frames = runtime.film(Shot(**SHOT | {"seed": seed} | more), ask)
        assert frames.shape == (9, 48, 32, 3)
        np.testing.assert_array_equal(frames, direct("WanPipeline", folder, seed, **more))
        assert ask.progress.reached()[:3] == ("denoising", 3, 3)


def test_the_file_has_the_frames_and_their_pace(wan: Any, tmp_path: Path) -> None:
    import imageio_ffmpeg

    runtime, _folder = wan
    ask = ask_of(fps=12)
    reply = runtime.routes()["/video/generations"](ask)
    assert reply.media_type == "video/mp4"
    (path := tmp_path / "a.mp4").write_bytes(reply.body)
    count, seconds = imageio_ffmpeg.count_frames_and_secs(path)
    assert (count, seconds) == (9, 0.75)
    assert ask.progress.reached()[:3] == ("encoding the file", 3, 3)


def test_a_video_starts_from_an_image(load: Callable[[Callable[[Path], Path]], Any]) -> None:
    import numpy as np

    for write in (write_tiny_wan_i2v, write_tiny_wan_ti2v):
        runtime, folder = load(write)
        image = drawn().resize((32, 48))
        frames = runtime.film(Shot(**SHOT), ask_of(encoded(image)))
        more = {"expand_timesteps": True} if write is write_tiny_wan_ti2v else {}
        wanted = _from_image(folder, image, **more)
        np.testing.assert_array_equal(frames, wanted)
        if write is write_tiny_wan_i2v:
            with pytest.raises(InvalidRequest, match="give one as `image`"):
                runtime.film(Shot(**SHOT), ask_of())
        else:
            assert runtime.film(Shot(**SHOT), ask_of()).shape == frames.shape
            shape = runtime.film(Shot(**SHOT | {"width": None, "height": None}), ask_of(encoded(image))).shape
            assert shape == (9, 48, 32, 3)


def _from_image(folder: Path, image: Any, **more: Any) -> Any:
    import diffusers
    import torch

    pipe = diffusers.WanImageToVideoPipeline.from_pretrained(folder, dtype=torch.float32, **more)
    pipe.set_progress_bar_config(disable=True)
    with torch.no_grad():
        return pipe(
            image=image.convert("RGB"),
            prompt=SHOT["prompt"],
            width=32,
            height=48,
            num_frames=9,
            num_inference_steps=3,
            generator=torch.Generator("cpu").manual_seed(7),
            output_type="np",
        ).frames[0]


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("", "shot"),
        ('{"prompt": "a", "seed": 1, "width": 30, "height": 32}', "width"),
        ('{"prompt": "a", "seed": 1, "num_frames": 10}', "num_frames"),
        ('{"prompt": "a", "seed": 1, "width": 32}', "shot"),
    ],
)
def test_a_request_that_is_wrong(wan: Any, text: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wan[0].routes()["/video/generations"](Ask({"shot": [text]}))
    assert refused.value.param == param


def test_what_this_pipeline_does_not_take(wan: Any, load: Callable[[Callable[[Path], Path]], Any]) -> None:
    runtime, _folder = wan
    with pytest.raises(InvalidRequest, match="leave out the image"):
        runtime.film(Shot(**SHOT), ask_of(encoded(drawn())))
    with pytest.raises(InvalidRequest, match="image cannot be read"):
        runtime.film(Shot(**SHOT), ask_of(b"GIF89a"))
    one, _folder = load(write_tiny_wan_ti2v)
    with pytest.raises(InvalidRequest, match="one network"):
        one.film(Shot(**SHOT, guidance_scale_2=2.0), ask_of())


def test_an_image_of_a_wild_shape_needs_a_size(load: Callable[[Callable[[Path], Path]], Any]) -> None:
    runtime, _folder = load(write_tiny_wan_i2v)
    for shape in ((100_000, 1), (1, 100_000), (9000, 40)):
        image = encoded(drawn().resize(shape))
        with pytest.raises(InvalidRequest, match="give a `size`") as refused:
            runtime.film(Shot(**SHOT | {"width": None, "height": None}), ask_of(image))
        assert refused.value.param == "size"


def test_a_client_that_has_left_ends_the_work_after_a_step(wan: Any) -> None:
    gone = threading.Event()
    ask = Ask({}, gone=gone)
    told = ask.progress.tell

    def leave(phase: str, step: int, total: int) -> None:
        told(phase, step, total)
        if phase == "denoising":
            gone.set()

    object.__setattr__(ask.progress, "tell", leave)
    with pytest.raises(Abandoned):
        wan[0].film(Shot(**SHOT), ask)
    assert ask.progress.reached()[:3] == ("denoising", 1, 3)


def test_a_pipeline_that_makes_no_videos(tmp_path: Path) -> None:
    from workers.engine.runtimes.video import Video

    (tmp_path / "model_index.json").write_text('{"_class_name": "StableDiffusionPipeline"}')
    entry = make_entry(format=ModelFormat.DIFFUSERS, capabilities=(Capability.VIDEO,), path=tmp_path)
    with pytest.raises(LoadFailed, match="makes no videos here"):
        Video().load(launch_of(entry))
