"""What requests for images and for videos have in common."""

import pytest

from api.openai.schemas.making import check_seeds, from_form
from infra.errors import InvalidRequest
from workers.engine.drawing import MAX_SEED


def test_texts_of_a_form_become_what_they_mean() -> None:
    fields = {"n": "2", "fps": "12.5", "loras": '[{"id": "name:a"}]', "prompt": "3", "seed": "", "steps": "many"}
    assert from_form(fields, ("n", "seed", "steps"), ("fps",)) == {
        "n": 2,
        "fps": 12.5,
        "loras": [{"id": "name:a"}],
        "prompt": "3",
        "steps": "many",
    }


@pytest.mark.parametrize(("name", "text"), [("fps", "quick"), ("loras", "{")])
def test_a_text_that_means_nothing_is_named(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        from_form({name: text}, (), ("fps",))
    assert refused.value.param == name


def test_the_last_one_has_a_seed_too() -> None:
    check_seeds({"seed": MAX_SEED - 1, "n": 2}, "image")
    with pytest.raises(InvalidRequest, match="the last video's seed") as refused:
        check_seeds({"seed": MAX_SEED - 1, "n": 3}, "video")
    assert refused.value.param == "seed"
