"""Requests for images: what a client may send, what its texts mean, and what is planned."""

import pytest

from api.openai.schemas.images import check_fields, form_values, normal, size_of
from infra.errors import InvalidRequest
from infra.types import Json

REF = f"sha256:{7:064x}"
LORA: Json = {"blob": REF, "weight": 0.5, "name": "ink"}


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, None), ("auto", None), ("64x4096", (64, 4096)), ("1024x1024", (1024, 1024)), ("2048x2048", (2048, 2048))],
)
def test_sizes(text: str | None, size: tuple[int, int] | None) -> None:
    assert size_of({"size": text}) == size


@pytest.mark.parametrize(
    "text", ["", "64", "x", "64x", "63x64", "56x64", "64x-64", "2048x2056", "٦٤x64", "064x1e3", "9" * 20]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        size_of({"size": text})
    assert refused.value.param == "size"


def test_what_openai_s_clients_send_is_taken() -> None:
    body: dict[str, Json] = {
        "prompt": "a fox",
        "n": None,
        "background": "auto",
        "moderation": "low",
        "output_compression": 0,
        "partial_images": 1,
        "quality": "high",
        "style": "vivid",
        "stream": False,
        "user": "user-1234",
        "safety_identifier": "user-1234",
    }
    check_fields(body, "generate")
    check_fields(
        {**body, "image": "aGk=", "mask": {"url": "https://example.org/a.png"}, "input_fidelity": "low"}, "edit"
    )
    varied: dict[str, Json] = {"n": 2, "size": "1024x1024", "response_format": "url", "user": "user-1234"}
    check_fields({**varied, "image": "aGk="}, "variation")
    several: list[Json] = [["ink", {"id": "name:ink", "weight": 0.5}], [], None]
    for loras in several:
        check_fields({"prompt": "a fox", "loras": loras}, "generate")


def test_a_form_s_texts() -> None:
    texts = {"prompt": "7", "n": "2", "seed": "x", "strength": "0.5", "stream": "False", "loras": '["ink"]', "size": ""}
    assert form_values(texts) == {
        "prompt": "7",
        "n": 2,
        "seed": "x",  # what is no number is told by the check
        "strength": 0.5,
        "stream": False,
        "loras": ["ink"],
    }
    assert form_values({"stream": "true", "n": "-1"}) == {"stream": True, "n": -1}
    for text, value in (("1", True), ("TRUE", True), ("0", False)):
        assert form_values({"stream": text}) == {"stream": value}


def test_a_form_s_stream_is_true_or_false() -> None:
    with pytest.raises(InvalidRequest, match="true or false") as refused:
        form_values({"stream": "no"})
    assert refused.value.param == "stream"


@pytest.mark.parametrize("text", ["--5", "-", "9" * 5000, "²", "٣٣٣", "1_0"])
def test_what_only_looks_like_a_number_in_a_form_is_told(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_fields(form_values({"model": "m", "prompt": "a", "n": text}), "generate")
    assert refused.value.param == "n"


def test_what_is_planned() -> None:
    planned = normal({"model": "m", "prompt": "a fox", "size": "64x72", "user": "me", "quality": "hd"})
    assert planned == {
        "task": "generate",
        "prompt": "a fox",
        "n": 1,
        "seed": 0,
        "width": 64,
        "height": 72,
        "loras": [],
        "response_format": "url",
        "output_format": "png",
        "quality": 100,
    }
    edit = normal({"prompt": "a fox", "task": "edit", "image": {"blob": REF}, "loras": [LORA], "output_compression": 0})
    assert (edit["task"], edit["image"], edit["loras"], edit["quality"]) == ("edit", {"blob": REF}, [LORA], 0)
    varied = normal({"task": "variation", "image": {"blob": REF}, "partial_images": None})
    assert (varied["task"], varied["image"], varied["prompt"]) == ("variation", {"blob": REF}, "")


@pytest.mark.parametrize(
    ("more", "kind", "quality", "background", "looks"),
    [
        ({}, "image_generation", "auto", "auto", 0),
        ({"quality": "low", "background": "opaque", "partial_images": 3}, "image_generation", "low", "opaque", 3),
        ({"quality": "hd", "response_format": "b64_json"}, "image_generation", "auto", "auto", 0),
        ({"image": {"blob": REF}, "partial_images": 1}, "image_edit", "auto", "auto", 1),
    ],
)
def test_what_is_planned_of_a_stream(
    more: dict[str, Json], kind: str, quality: str, background: str, looks: int
) -> None:
    asked: dict[str, Json] = {"prompt": "a fox", **more}
    planned = normal({**asked, "stream": True})
    assert planned.pop("events") == {"type": kind, "quality": quality, "background": background}
    assert planned.pop("partial_images") == looks
    assert planned == normal(asked)  # as the job that a run is tried again as, which has no stream


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"task": "edit"}, "image"),
        ({"task": "generate", "image": {"blob": REF}}, "image"),
        ({"image": {"blob": "/etc/passwd"}}, "image.blob"),
        ({"loras": [{"path": "/etc/passwd"}]}, "loras.0.blob"),
        ({"loras": ["ink"]}, "loras.0"),
        ({"task": "variation"}, "image"),
        ({"task": "variation", "image": {"blob": REF}}, "prompt"),
        ({"stream": True, "response_format": "url"}, "response_format"),
        ({"stream": True, "partial_images": 4}, "partial_images"),
        ({"stream": "yes"}, "stream"),
        ({"n": 11}, "n"),
        ({"width": 64}, "width"),
    ],
)
def test_what_comes_from_elsewhere_is_checked_again(more: dict[str, Json], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        normal({"prompt": "a fox", **more})
    assert refused.value.param == param


def test_what_has_neither_a_prompt_nor_a_stream() -> None:
    bare: list[dict[str, Json]] = [{}, {"task": "edit", "image": {"blob": REF}}]
    for body in bare:
        with pytest.raises(InvalidRequest) as refused:
            normal(body)
        assert refused.value.param == "prompt"
    with pytest.raises(InvalidRequest) as refused:
        normal({"task": "variation", "image": {"blob": REF}, "stream": True})
    assert refused.value.param == "stream"


@pytest.mark.parametrize(
    ("strength", "words"),
    [(0.0, "must be more than 0.0"), (1.5, "must be at most 1.0"), ("a", "must be a number")],
)
def test_a_strength_out_of_its_range_is_told_in_our_words(strength: Json, words: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_fields({"prompt": "a", "image": "-", "strength": strength}, "edit")
    assert (raised.value.message, raised.value.param) == (f"'strength' {words}", "strength")
