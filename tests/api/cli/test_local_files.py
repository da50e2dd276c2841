"""Files that a plan's request names: told by what the planner has to know of them."""

from pathlib import Path

import pytest

from api.cli.local_files import described
from infra.errors import InvalidRequest
from infra.types import Json
from tests.documents import drawn, empty_pdf, encoded
from tests.sounds import wav


def test_a_recording_is_its_length(tmp_path: Path) -> None:
    file = tmp_path / "talk.wav"
    file.write_bytes(wav(2.0))
    body: dict[str, Json] = {"model": "ears", "file": str(file), "language": "en"}
    told = described("transcription", body)
    assert isinstance(known := told["file"], dict)
    assert known.pop("seconds") == pytest.approx(2.0, abs=0.1)
    assert told == {"model": "ears", "file": {"name": "talk.wav", "bytes": file.stat().st_size}, "language": "en"}


def test_documents_are_their_pages(tmp_path: Path) -> None:
    image, pages = tmp_path / "a.png", tmp_path / "b.pdf"
    image.write_bytes(encoded(drawn()))
    pages.write_bytes(empty_pdf(7))
    told: list[Json] = [{"name": "a.png", "pages": 1}, {"name": "b.pdf", "pages": 7}]
    assert described("ocr", {"files": [str(image), str(pages)]}) == {"files": told, "batch": True}
    assert described("ocr", {"file": str(pages)}) == {"files": told[1:], "batch": False}


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("chat", {"file": "/etc/hostname"}),
        ("transcription", {"file": {"seconds": 3}}),
        ("ocr", {"files": [{"pages": 3}]}),
        ("ocr", {}),
    ],
)
def test_what_names_no_file_stays_as_it_is(endpoint: str, body: dict[str, Json]) -> None:
    assert described(endpoint, body) is body


def test_what_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no file"):
        described("transcription", {"file": str(tmp_path / "missing.wav")})
    text = tmp_path / "a.txt"
    text.write_text("hello")
    with pytest.raises(InvalidRequest, match="neither an image nor a PDF"):
        described("ocr", {"file": str(text)})
    with pytest.raises(InvalidRequest, match="no audio file of a known kind"):
        described("transcription", {"file": str(text)})
