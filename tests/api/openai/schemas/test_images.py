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
        "partial_images": 0,
        "quality": "high",
        "style": "vivid",
        "stream": False,
        "user": "user-1234",
    }
    check_fields(body, edit=False)
    check_fields(
        {**body, "image": "aGk=", "mask": {"url": "https://example.org/a.png"}, "input_fidelity": "low"}, edit=True
    )
    several: list[Json] = [["ink", {"id": "name:ink", "weight": 0.5}], [], None]
    for loras in several:
        check_fields({"prompt": "a fox", "loras": loras}, edit=False)


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


@pytest.mark.parametrize("text", ["--5", "-", "9" * 5000, "²", "٣٣٣", "1_0"])
def test_what_only_looks_like_a_number_in_a_form_is_told(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_fields(form_values({"model": "m", "prompt": "a", "n": text}), edit=False)
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


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"task": "edit"}, "image"),
        ({"task": "generate", "image": {"blob": REF}}, "image"),
        ({"image": {"blob": "/etc/passwd"}}, "image.blob"),
        ({"loras": [{"path": "/etc/passwd"}]}, "loras.0.blob"),
        ({"loras": ["ink"]}, "loras.0"),
        ({"n": 11}, "n"),
        ({"width": 64}, "width"),
    ],
)
def test_what_comes_from_elsewhere_is_checked_again(more: dict[str, Json], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        normal({"prompt": "a fox", **more})
    assert refused.value.param == param
