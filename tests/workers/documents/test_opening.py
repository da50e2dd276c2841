"""Documents become pages, and files that are made to hurt become sentences."""

import subprocess
import sys

import psutil
import pytest
from PIL import Image, ImageFont

from infra.errors import CoderAIError, InvalidRequest, PayloadTooLarge
from tests.documents import drawn, empty_pdf, encoded, huge_png, locked_pdf, pdf
from workers.documents.opening import count_pages, open_pages
from workers.documents.types import MAX_PAGES, MAX_RENDERED_PIXELS, DocumentType, Page, Span

ALL = Span(1, MAX_PAGES)


def read(data: bytes, kind: DocumentType, span: Span = ALL, dpi: int = 72) -> list[Page]:
    return list(open_pages(data, kind, span, dpi))


def test_a_pdf_has_its_pages_in_order() -> None:
    data = pdf([Image.new("RGB", (100, 50 + number), "white") for number in range(3)])
    assert count_pages(data, "application/pdf") == 3
    assert [page.number for page in read(data, "application/pdf", Span(2, 3))] == [2, 3]
    assert [page.number for page in read(data, "application/pdf", Span(3, 9))] == [3]


def test_dots_an_inch_make_pixels() -> None:
    data = empty_pdf(1)
    assert [page[1:3] for page in read(data, "application/pdf", dpi=72)] == [(200, 100)]
    assert [page[1:3] for page in read(data, "application/pdf", dpi=144)] == [(400, 200)]


def test_a_huge_page_is_drawn_smaller() -> None:
    data = pdf([Image.new("1", (9000, 6000))])
    (page,) = read(data, "application/pdf", dpi=600)
    assert 0.9 * MAX_RENDERED_PIXELS < page.width * page.height < 1.1 * MAX_RENDERED_PIXELS


def test_an_image_is_one_page_and_a_tiff_has_several() -> None:
    frames = [Image.new("RGB", (40, 30 + number), "white") for number in range(3)]
    tiff = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert count_pages(tiff, "image/tiff") == 3
    assert [page[:3] for page in read(tiff, "image/tiff", Span(2, 3))] == [(2, 40, 31), (3, 40, 32)]
    gif = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert count_pages(gif, "image/gif") == 1
    assert [page[:3] for page in read(gif, "image/gif")] == [(1, 40, 30)]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_kind_of_pixel_becomes_red_green_and_blue(mode: str) -> None:
    (page,) = read(encoded(Image.new(mode, (9, 8))), "image/png")
    assert len(page.pixels) == 9 * 8 * 3


def test_what_is_transparent_is_white() -> None:
    (page,) = read(encoded(Image.new("RGBA", (9, 8), (0, 0, 0, 0))), "image/png")
    assert set(page.pixels) == {255}


def test_a_photo_that_lies_on_its_side_is_set_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (page,) = read(encoded(Image.new("RGB", (40, 20)), "JPEG", exif=exif), "image/jpeg")
    assert (page.width, page.height) == (20, 40)


CUT_PNG = encoded(drawn())[:2000]
BAD: list[tuple[bytes, DocumentType, type[CoderAIError], str]] = [
    (huge_png(), "image/png", PayloadTooLarge, "million pixels"),
    (huge_png(9_000), "image/png", PayloadTooLarge, "9000 x 9000"),
    (CUT_PNG, "image/png", InvalidRequest, "cut off"),
    (b"\x89PNG\r\n\x1a\n" + b"junk" * 50, "image/png", InvalidRequest, "damaged"),
    (encoded(drawn(), "JPEG")[:500], "image/jpeg", InvalidRequest, "damaged"),
    (locked_pdf(), "application/pdf", InvalidRequest, "password"),
    (b"%PDF-1.7\n" + b"junk" * 99, "application/pdf", InvalidRequest, "damaged"),
]


@pytest.mark.parametrize(("data", "kind", "error", "words"), BAD)
def test_a_bad_document_is_refused_with_a_sentence(
    data: bytes, kind: DocumentType, error: type[CoderAIError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        read(data, kind)
    assert raised.value.param == "file"


def test_most_images_are_counted_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    for form, kind in (("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")):
        assert count_pages(encoded(drawn(), form), kind) == 1  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLarge, match="9000 x 9000 pixels") as raised:
        count_pages(huge_png(9_000), "image/png")
    assert (raised.value.param, raised.value.code) == ("file", "too_many_pixels")


def test_a_pdf_of_too_many_pages_is_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="501 pages"):
        count_pages(empty_pdf(MAX_PAGES + 1), "application/pdf")


def test_no_process_is_left_when_nobody_wants_the_rest() -> None:
    others = children()
    pages = open_pages(pdf([drawn() for _ in range(4)]), "application/pdf", ALL, 100)
    next(pages)
    assert children() > others
    pages.close()  # type: ignore[attr-defined]  # a generator's
    assert children() == others


def children() -> set[int]:
    """The processes that this one has started, those included that have ended and were not waited for."""
    return {child.pid for child in psutil.Process().children()}


def test_the_reader_is_held_to_its_memory() -> None:
    script = (
        "import resource; from workers.documents import serving; serving.limit(9);"
        "print(resource.getrlimit(resource.RLIMIT_AS)[0] == serving.MEMORY_BYTES);"
        "print(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "9"]


def test_the_drawn_text_needs_no_font_of_the_system() -> None:
    assert isinstance(ImageFont.load_default(32), ImageFont.FreeTypeFont)
