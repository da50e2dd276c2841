"""What a request for videos may be."""

from typing import Any

import pytest

from api.openai.schemas.video import check_fields, form_values, normal
from infra.errors import InvalidRequest

ONE: dict[str, Any] = {"model": "wan", "prompt": "a cat"}
REF = f"sha256:{'0' * 64}"


def test_what_is_not_said_has_a_default() -> None:
    check_fields(ONE)
    assert normal(ONE) == {
        "prompt": "a cat",
        "n": 1,
        "seed": 0,
        "width": None,
        "height": None,
        "num_frames": 81,
        "fps": 16.0,
        "loras": [],
        "response_format": "url",
    }


def test_a_size_is_width_and_height() -> None:
    for fields in ({"size": "832x480"}, {"width": 832, "height": 480}):
        made = normal(ONE | fields)
        assert (made["width"], made["height"]) == (832, 480)
        assert "size" not in made


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": "x" * 32_001}, "prompt"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": True}, "n"),
        ({"num_frames": 80}, "num_frames"),
        ({"num_frames": 1_000_001}, "num_frames"),
        ({"size": "832"}, "size"),
        ({"size": "832x480x3"}, "size"),
        ({"size": "-16x16"}, "size"),
        ({"size": "833x480"}, "size"),
        ({"size": "832x480", "width": 832}, "size"),
        ({"width": 832}, "height"),
        ({"height": 480}, "width"),
        ({"width": 1000, "height": 480}, "width"),
        ({"width": 1280, "height": 1280, "num_frames": 241}, "size"),
        ({"seed": 2**53}, "seed"),
        ({"seed": 2**53 - 1, "n": 2}, "seed"),
        ({"fps": float("nan")}, "fps"),
        ({"fps": 61}, "fps"),
        ({"guidance_scale": 51}, "guidance_scale"),
        ({"mode": "v2v"}, "mode"),
        ({"mode": "i2v"}, "image"),
        ({"mode": "t2v", "image": "x"}, "mode"),
        ({"response_format": "b64_json"}, "response_format"),
        ({"loras": ["x"] * 9}, "loras"),
        ({"audio": True}, "audio"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_fields(ONE | fields)
    assert str(refused.value.param).split(".")[0] == param


def test_what_is_planned_has_references_and_nothing_else() -> None:
    made = normal(ONE | {"image": {"blob": REF}, "loras": [{"blob": REF, "weight": 0.5, "name": "style"}]})
    assert (made["image"], made["loras"][0]["weight"]) == ({"blob": REF}, 0.5)  # type: ignore[index,call-overload]
    for fields in ({"image": "aGVsbG8="}, {"image": {"blob": "../../etc/passwd"}}, {"loras": ["style"]}):
        with pytest.raises(InvalidRequest):
            normal(ONE | fields)


def test_a_form_s_texts_have_values() -> None:
    texts = {
        "prompt": "5",
        "n": "2",
        "steps": "",
        "fps": "12.5",
        "seed": "7",
        "loras": '["style"]',
        "num_frames": "nine",
    }
    assert form_values(texts) == {
        "prompt": "5",
        "n": 2,
        "fps": 12.5,
        "seed": 7,
        "loras": ["style"],
        "num_frames": "nine",
    }
    for name, text in (("fps", "quick"), ("loras", "[")):
        with pytest.raises(InvalidRequest) as refused:
            form_values({name: text})
        assert refused.value.param == name


@pytest.mark.parametrize("text", ["--5", "-", "9" * 5000, "²"])
def test_what_only_looks_like_a_number_in_a_form_is_told(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_fields(form_values({**ONE, "width": text, "height": "64"}))
    assert refused.value.param == "width"


def test_a_side_that_no_model_takes_is_told_in_our_words() -> None:
    with pytest.raises(InvalidRequest, match=r"^'size' must be a multiple of 16$"):
        check_fields(ONE | {"size": "65x64"})
