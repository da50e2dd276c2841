"""Uploads over time: what expires, what is dropped, and that a part counts once."""

from pathlib import Path

import pytest

from infra.database import Database
from infra.errors import InvalidRequest, NotFound
from infra.file_rows import Files, NewFile, Wanted
from infra.types import PartId
from infra.upload_rows import LASTS_S, Part, Upload, Uploads
from tests.infra.test_file_rows import ME, YOU, Clock, clock, content, database, files, make

__all__ = ["clock", "database", "files"]


def begun(uploads: Uploads, size_bytes: int = 6, lasts_s: float | None = None) -> Upload:
    return uploads.create(NewFile(ME, "a.bin", "vision", "x/y", lasts_s), size_bytes)


def part(uploads: Uploads, upload: Upload, data: bytes) -> Part:
    incoming = uploads.begin_part(upload.id, ME, len(data))
    incoming.write(data)
    return uploads.add_part(upload.id, ME, incoming)


def test_parts_become_one_file(files: Files) -> None:
    uploads = Uploads(files)
    upload = begun(uploads, lasts_s=3600)
    parts = [part(uploads, upload, data).id for data in (b"abc", b"def")]
    done = uploads.complete(upload.id, ME, parts, "e80b5017098950fc58aad83c8c14978e")
    assert done.file is not None
    assert (done.file.size_bytes, done.file.media_type, done.file.filename) == (6, "x/y", "a.bin")
    assert done.file.expires_at is not None
    with files.open(done.file) as file:
        assert file.read() == b"abcdef"
    assert len(content(files)) == 1


def test_a_single_part_that_is_the_whole(files: Files) -> None:
    uploads = Uploads(files)
    upload = begun(uploads, 3)
    done = uploads.complete(upload.id, ME, [part(uploads, upload, b"abc").id], None)
    assert done.file is not None
    with files.open(done.file) as file:
        assert file.read() == b"abc"


def test_what_expires_loses_its_parts_and_is_forgotten_a_day_later(files: Files, clock: Clock) -> None:
    uploads = Uploads(files)
    upload = begun(uploads)
    kept = part(uploads, upload, b"abcdef")
    assert uploads.prune() == 0
    clock.now_s += LASTS_S
    for late in (lambda: part(uploads, upload, b"a"), lambda: uploads.complete(upload.id, ME, [kept.id], None)):
        with pytest.raises(InvalidRequest) as caught:
            late()
        assert caught.value.code == "upload_expired"
    assert uploads.prune() == 1
    assert content(files) == []
    with pytest.raises(InvalidRequest):
        uploads.cancel(upload.id, ME)
    clock.now_s += 25 * 3600
    uploads.prune()
    with pytest.raises(NotFound):
        uploads.cancel(upload.id, ME)


def test_it_is_its_key_s(files: Files) -> None:
    uploads = Uploads(files)
    upload = begun(uploads)
    for reach in (
        lambda: uploads.begin_part(upload.id, YOU, 1),
        lambda: uploads.complete(upload.id, YOU, [PartId("part_x")], None),
        lambda: uploads.cancel(upload.id, YOU),
    ):
        with pytest.raises(NotFound):
            reach()
    assert uploads.cancel(upload.id, None).status == "cancelled"


def test_parts_count_as_the_key_s_until_they_are_one_file(database: Database, tmp_path: Path, clock: Clock) -> None:
    mib = 1 << 20
    files = make(database, tmp_path, clock, quota_per_key_mb=2)
    uploads = Uploads(files)
    with pytest.raises(InvalidRequest, match="quota"):
        begun(uploads, 2 * mib + 1)
    upload = begun(uploads, 2 * mib)
    parts = [part(uploads, upload, bytes([n]) * mib).id for n in range(2)]
    with pytest.raises(InvalidRequest, match="quota"):
        begun(uploads, 1)
    uploads.complete(upload.id, ME, parts, None)
    with database.read() as session:
        assert files.used_bytes(session, ME) == 2 * mib
    assert [file.size_bytes for file in files.page(Wanted(ME))[0]] == [2 * mib]


def test_a_part_in_flight_when_the_upload_ends_leaves_nothing(files: Files) -> None:
    uploads = Uploads(files)
    upload = begun(uploads)
    incoming = uploads.begin_part(upload.id, ME, 3)
    incoming.write(b"abc")
    uploads.cancel(upload.id, ME)
    with pytest.raises(InvalidRequest):
        uploads.add_part(upload.id, ME, incoming)
    assert content(files) == []
