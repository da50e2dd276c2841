"""What may be filmed."""

import pytest
from pydantic import ValidationError

from workers.engine.filming import Shot


def test_what_is_not_said_is_left_to_the_pipeline() -> None:
    shot = Shot(prompt="a", seed=1)
    assert (shot.width, shot.height, shot.num_frames, shot.fps, shot.steps) == (None, None, 81, 16.0, None)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_frames": 10}, "4 k"),
        ({"num_frames": 245}, "241"),
        ({"width": 24, "height": 32}, "multiple of 16"),
        ({"width": 32}, "both width and height"),
        ({"width": 2048, "height": 2048}, "too much"),
        ({"width": 1280, "height": 1280, "num_frames": 241}, "too much"),
        ({"fps": 0.5}, "greater"),
        ({"steps": 201}, "200"),
        ({"seed": -1}, "greater"),
        ({"tempo": 1}, "Extra"),
    ],
)
def test_what_is_too_much(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Shot.model_validate({"prompt": "a", "seed": 1} | fields)


def test_the_largest_that_may_be() -> None:
    assert Shot(prompt="a", seed=1, width=1280, height=720, num_frames=241).num_frames == 241
