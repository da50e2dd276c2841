"""Pictures in and out: what is decoded, and how masks are understood."""

import contextlib
import io

import pytest
from PIL import Image

from infra.errors import InvalidRequest
from tests.pictures import bomb, encoded, gradient, left_half, pixels
from workers.engine.drawing import Form
from workers.engine.runtimes.pictures import colours, masked, opened
from workers.engine.runtimes.pictures import encoded as written


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_three_forms_are_read(form: str) -> None:
    assert opened(encoded(gradient(32, 16), form), "image").size == (32, 16)


@pytest.mark.parametrize("data", [b"", b"GIF89a", encoded(gradient(), "GIF"), encoded(gradient(), "TIFF"), b"%PDF-1.7"])
def test_no_other_is(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="mask cannot be read"):
        opened(data, "mask")


def test_what_is_cut_off_or_too_large_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        opened(encoded(gradient())[:100], "image")
    for side in (5000, 20_000, 2**31 - 1):
        with pytest.raises(InvalidRequest):
            opened(bomb(side), "image")


def test_a_photograph_stands_upright() -> None:
    lying, held = Image.new("RGB", (32, 16)), io.BytesIO()
    exif = lying.getexif()
    exif[0x0112] = 6  # turned by a quarter
    lying.save(held, "JPEG", exif=exif)
    assert opened(held.getvalue(), "image").size == (16, 32)


def test_what_is_transparent_becomes_white() -> None:
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    image.putpixel((1, 0), (10, 20, 30, 0))
    assert list(colours(image, (2, 1)).tobytes()) == [10, 20, 30, 255, 255, 255]
    assert colours(gradient(32, 16), (64, 32)).size == (64, 32)


def test_both_kinds_of_mask() -> None:
    grey = left_half(16, 8)
    clear = Image.new("RGBA", (16, 8), "white")
    clear.putalpha(Image.eval(grey, lambda value: 255 - value))
    assert masked(grey, (16, 8)).tobytes() == masked(clear, (16, 8)).tobytes() == grey.tobytes()
    assert masked(grey, (32, 16)).getcolors() == [(256, 0), (256, 255)]


@pytest.mark.parametrize("form", ["png", "jpeg", "webp"])
def test_what_is_written_can_be_read(form: Form) -> None:
    image = gradient(32, 16)
    data = written(image, form, 80)
    assert opened(data, "image").size == (32, 16)
    if form == "png":
        assert pixels(data) == image.tobytes()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0II*\0",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x1f\0\x02\0\0\0\4abc\0\0\0\0\0",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x02\x01\x02\0\x02\0\0\0\4abc\0\x01\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0",
    ],
)
def test_what_a_photograph_says_of_itself_in_a_wrong_way_breaks_nothing(form: str, exif: bytes) -> None:
    held = io.BytesIO()
    Image.new("RGB", (16, 8)).save(held, form, exif=exif)
    with contextlib.suppress(InvalidRequest):
        assert sorted(opened(held.getvalue(), "image").size) == [8, 16]


def test_sixteen_bits_of_grey_are_not_all_white() -> None:
    deep = encoded(Image.new("I;16", (2, 2), 0x8000))
    assert colours(opened(deep, "image"), (2, 2)).getpixel((0, 0)) == (128, 128, 128)
    assert masked(opened(deep, "mask"), (2, 2)).getpixel((0, 0)) == 128
