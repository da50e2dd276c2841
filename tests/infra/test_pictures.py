"""A picture's kind and size from its head, and what is no picture."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.pictures import Picture, measure
from tests.pictures import bomb, encoded, gradient


@pytest.mark.parametrize(("form", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")])
def test_three_kinds(form: str, media_type: str) -> None:
    data = encoded(gradient(123, 45), form)
    assert measure(data) == Picture(media_type, 123, 45)  # type: ignore[arg-type]
    assert measure(data[:20]) is None


def test_every_kind_of_webp_and_jpeg() -> None:
    import io

    for form, options in (("WEBP", {"lossless": True}), ("JPEG", {"progressive": True})):
        held = io.BytesIO()
        gradient(300, 7).save(held, form, **options)
        found = measure(held.getvalue())
        assert found is not None
        assert found[1:] == (300, 7)
    held = io.BytesIO()
    image = gradient(300, 7).convert("RGBA")
    image.putalpha(100)
    image.save(held, "WEBP")
    found = measure(held.getvalue())
    assert found is not None
    assert found[1:] == (300, 7)


def test_a_bomb_is_measured_and_not_opened() -> None:
    assert measure(bomb(20_000)) == Picture("image/png", 20_000, 20_000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a" + b"\0" * 40,
        b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 0, 5),
        b"\xff\xd8\xff\xe0" + b"\0" * 4000,
        b"\xff\xd8\xff\xe0\xff\xff",
        b"RIFF\0\0\0\0WEBPVP9 " + b"\0" * 40,
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    ],
)
def test_what_is_none(data: bytes) -> None:
    assert measure(data) is None


@given(st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF0000WEBP"]), st.binary(max_size=300))
def test_any_bytes_are_looked_at(start: bytes, rest: bytes) -> None:
    found = measure(start + rest)
    assert found is None or (found.width > 0 and found.height > 0)
