"""What an engine may be asked to draw."""

import pytest
from pydantic import ValidationError

from workers.engine.drawing import MEDIA_TYPES, Drawing


def test_it_goes_as_json() -> None:
    drawing = Drawing(prompt="a fox", seed=3, width=64, height=72, loras=({"path": "/a", "weight": 1.0, "name": "a"},))
    assert Drawing.model_validate_json(drawing.model_dump_json(exclude_none=True)) == drawing
    assert drawing.output_format in MEDIA_TYPES


@pytest.mark.parametrize(
    "wrong", [{"width": 65}, {"height": 0}, {"steps": 0}, {"strength": 0.0}, {"seed": -1}, {"quality": 101}, {"x": 1}]
)
def test_its_limits(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Drawing.model_validate({"prompt": "a fox", "seed": 1} | wrong)
