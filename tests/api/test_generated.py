"""Addresses of files that models have made: whole, changed, late."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from api.generated import GeneratedFiles
from infra.database import Database
from infra.errors import Forbidden
from infra.file_rows import GENERATED, Files
from infra.types import FileId, KeyName
from tests.infra.test_file_rows import ME, Clock, clock, database, files

__all__ = ["clock", "database", "files"]


@pytest.fixture
def generated(files: Files, tmp_path: Path, clock: Clock, database: Database) -> GeneratedFiles:
    return GeneratedFiles(files, tmp_path / "key", clock)


def parts(url: str) -> tuple[str, str, str]:
    split = urlsplit(url)
    query = parse_qs(split.query)
    return split.path.rpartition("/")[2], query["expires"][0], query["signature"][0]


def test_what_is_kept(generated: GeneratedFiles, files: Files, clock: Clock) -> None:
    name = generated.keep(ME, b"png", "image", "png", "image/png")
    file = files.get(name, ME)
    assert (file.purpose, file.media_type, file.size_bytes) == (GENERATED, "image/png", 3)
    clock.now_s += files.settings.generated_hours * 3600
    assert files.prune() == 1


def test_an_address_is_good_for_a_time(generated: GeneratedFiles, tmp_path: Path, clock: Clock, files: Files) -> None:
    url = generated.signed_url(FileId("image-1.png"), "http://host:1")
    assert url.startswith("http://host:1/v1/files/image-1.png?expires=")
    generated.require_signature(*parts(url))
    GeneratedFiles(files, tmp_path / "key", clock).require_signature(*parts(url))  # a later start of the same install
    clock.now_s += files.settings.url_minutes * 60 + 1
    with pytest.raises(Forbidden) as caught:
        generated.require_signature(*parts(url))
    assert caught.value.code == "url_expired"


@pytest.mark.parametrize(
    "change",
    [
        lambda name, expires, signature: ("image-2.png", expires, signature),
        lambda name, expires, signature: (name, str(int(expires) + 1), signature),
        lambda name, expires, signature: (name, expires, signature[:-1]),
        lambda name, expires, signature: (name, expires, "ä"),
        lambda name, expires, signature: (name, "", signature),
        lambda name, expires, signature: (name, "-1", signature),
        lambda name, expires, signature: (name, "٣", signature),
        lambda name, expires, signature: (name, "9" * 5000, signature),
    ],
)
def test_one_that_was_changed_is_not(generated: GeneratedFiles, change: object) -> None:
    assert callable(change)
    with pytest.raises(Forbidden) as caught:
        generated.require_signature(*change(*parts(generated.signed_url(FileId("image-1.png")))))
    assert caught.value.code == "bad_signature"


def test_another_install_s_address_opens_nothing(generated: GeneratedFiles, files: Files, tmp_path: Path) -> None:
    url = generated.signed_url(FileId("image-1.png"))
    with pytest.raises(Forbidden):
        GeneratedFiles(files, tmp_path / "other").require_signature(*parts(url))


def test_what_a_key_has_already_is_found_while_it_lasts(generated: GeneratedFiles, files: Files, clock: Clock) -> None:
    name = generated.keep(ME, b"png", "image", "png", "image/png")
    ref = files.get(name, ME).ref
    assert generated.again(ME, ref) == name
    assert generated.again(KeyName("other"), ref) is None
    assert generated.again(ME, f"sha256:{0:064x}") is None
    clock.now_s += files.settings.generated_hours * 3600 - files.settings.url_minutes * 60
    assert generated.again(ME, ref) is None  # an address of it would outlast it
