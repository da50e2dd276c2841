"""What bytes are, whatever their name says."""

import pytest

from tests.documents import drawn, empty_pdf, encoded
from workers.documents.types import IMAGE_TYPES, ImageType, sniff


@pytest.mark.parametrize("kind", IMAGE_TYPES)
def test_images_are_known_by_their_bytes(kind: ImageType) -> None:
    assert sniff(encoded(drawn(("x",)), kind.removeprefix("image/"))) == kind


def test_a_pdf_may_begin_with_junk() -> None:
    assert sniff(b"junk\n" + empty_pdf(1)) == "application/pdf"
    assert sniff(b"\0" * 2000 + empty_pdf(1)) is None


@pytest.mark.parametrize("data", [b"", b"hello", b"RIFF\0\0\0\0WAVE", b"<svg/>", b"%!PS-Adobe-3.0", b"PK\x03\x04"])
def test_anything_else_is_none(data: bytes) -> None:
    assert sniff(data) is None
