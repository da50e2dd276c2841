"""What a far service is sent of a request: what its client has set, and nothing else."""

import pytest

from api.openai.schemas.far_files import far_images, far_video
from api.openai.schemas.shared import Body
from infra.errors import InvalidRequest

REF = f"sha256:{7:064x}"


def test_nothing_is_added_to_an_image_s_request() -> None:
    assert far_images({"model": "m", "prompt": "a fox", "n": None, "steps": None, "quality": None}) == {
        "task": "generate",
        "n": 1,
        "seed": None,
        "response_format": "url",
        "asked": {"prompt": "a fox"},
    }


def test_all_that_is_set_is_sent_as_it_was_said() -> None:
    said: Body = {
        "prompt": "a fox",
        "size": "1024x1536",
        "quality": "hd",
        "style": "vivid",
        "output_format": "jpeg",
        "output_compression": 0,
        "user": "me",
        "negative_prompt": "a dog",
        "steps": 4,
        "guidance_scale": 0.0,
        "strength": 0.5,
    }
    ours: Body = {"n": 3, "seed": 0, "response_format": "b64_json", "image": {"blob": REF}, "mask": {"blob": REF}}
    planned = far_images({"model": "m", "task": "edit", "loras": [], **said, **ours})
    assert planned == {"task": "edit", "asked": said, **ours}
    streamed = far_images({"prompt": "a fox", "quality": "low", "stream": True, "partial_images": 2})
    assert streamed["asked"] == {"prompt": "a fox", "quality": "low"}
    assert streamed["events"] == {"type": "image_generation", "quality": "low", "background": "auto"}


def test_a_variation_has_nothing_but_its_image() -> None:
    varied = far_images({"task": "variation", "image": {"blob": REF}})
    assert (varied["task"], varied["image"], varied["asked"]) == ("variation", {"blob": REF}, {})


def test_a_video_s_length_is_said() -> None:
    assert far_video({"prompt": "a cat", "size": "832x480", "mode": "t2v"}) == {
        "n": 1,
        "seed": None,
        "response_format": "url",
        "num_frames": 81,
        "fps": 16.0,
        "asked": {"prompt": "a cat", "size": "832x480", "num_frames": 81, "fps": 16.0},
    }


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"loras": [{"blob": REF, "weight": 1.0, "name": "ink"}]}, "loras"),
        ({"n": 99}, "n"),
        ({"size": "large"}, "size"),
        ({"frames": 3}, "frames"),
        ({"prompt": ""}, "prompt"),
    ],
)
def test_what_is_refused(more: Body, param: str) -> None:
    for check in (far_images, far_video):
        with pytest.raises(InvalidRequest) as refused:
            check({"prompt": "a fox", **more})
        assert refused.value.param == param
