"""Rows and bytes together: quotas, expiry, content that several files share, and what a crash leaves."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import col, select

from infra.database import Database, open_database
from infra.errors import DiskFull, InvalidRequest, NotFound
from infra.file_rows import Files, NewFile, StoredFile, Wanted
from infra.file_store import FileStore
from infra.migrate import migrate
from infra.sections import FilesSettings
from infra.tables import FileRow
from infra.types import FileId, KeyName

ME, YOU = KeyName("me"), KeyName("you")
DAY_S = 86_400.0


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/home/coderai.db")
    migrate(opened)
    yield opened
    opened.close()


def make(database: Database, tmp_path: Path, clock: Clock, **settings: float) -> Files:
    return Files(database, FileStore(tmp_path / "files"), FilesSettings.model_validate(settings), clock)


@pytest.fixture
def files(database: Database, tmp_path: Path, clock: Clock) -> Files:
    return make(database, tmp_path, clock)


def add(files: Files, data: bytes = b"data", key: KeyName = ME, lasts_s: float | None = None) -> StoredFile:
    incoming = files.begin(key, 1 << 30, len(data))
    incoming.write(data)
    return files.add(incoming, NewFile(key, "a.txt", "user_data", lasts_s=lasts_s))


def content(files: Files) -> list[str]:
    return sorted(path.parent.name + path.name for path in files.store.root.rglob("*") if path.is_file())


def test_bytes_go_with_the_last_row_that_has_them(files: Files) -> None:
    mine, yours = add(files), add(files, key=YOU)
    assert mine.ref == yours.ref
    assert len(content(files)) == 1
    files.delete(mine.id, ME)
    with files.open(yours) as file:
        assert file.read() == b"data"
    files.delete(yours.id, YOU)
    assert content(files) == []
    with pytest.raises(NotFound):
        files.open(yours)


def test_a_file_is_found_by_its_owner_and_by_whoever_sees_all(files: Files) -> None:
    file = add(files)
    assert files.get(file.id, ME) == files.get(file.id, None) == file
    for reach in (files.get, files.delete):
        with pytest.raises(NotFound):
            reach(file.id, YOU)
        with pytest.raises(NotFound):
            reach(FileId("file-x"), None)


def test_what_expires_is_gone_at_once_and_its_bytes_with_the_next_look(files: Files, clock: Clock) -> None:
    short, lasting = add(files, b"1", lasts_s=10), add(files, b"2")
    assert short.expires_at == short.created_at + timedelta(seconds=10)
    assert files.prune() == 0
    clock.now_s += 10
    with pytest.raises(NotFound):
        files.get(short.id, ME)
    assert files.page(Wanted(ME))[0] == [lasting]
    assert len(content(files)) == 2
    assert files.prune() == 1
    assert len(content(files)) == 1
    clock.now_s += 1000 * DAY_S
    assert files.prune() == 0


def test_keep_days_hold_for_every_file(database: Database, tmp_path: Path, clock: Clock) -> None:
    add(make(database, tmp_path, clock))
    files = make(database, tmp_path, clock, keep_days=2)
    clock.now_s += DAY_S
    young = add(files, b"young")
    clock.now_s += DAY_S
    assert files.page(Wanted(None))[0] == [young]
    assert files.prune() == 1
    assert len(content(files)) == 1


def test_quotas(database: Database, tmp_path: Path, clock: Clock) -> None:
    files = make(database, tmp_path, clock, quota_per_key_mb=1, quota_total_mb=2)
    mib = 1 << 20
    first = add(files, b"1" * (mib - 1))
    with pytest.raises(InvalidRequest) as caught:
        files.begin(ME, mib, 2)
    assert caught.value.code == "file_quota_exceeded"
    incoming = files.begin(ME, mib)  # nothing is announced, and it is too much when it is there
    incoming.write(b"22")
    with pytest.raises(InvalidRequest):
        files.add(incoming, NewFile(ME, "a", "batch"))
    add(files, b"1" * mib, YOU)  # the same bytes nearly: each counts its own
    with pytest.raises(DiskFull, match=r"files\.quota_total_mb"):
        files.begin(KeyName("third"), mib, 2)
    assert len(content(files)) == 2
    files.delete(first.id, ME)
    add(files, b"22")


def test_pages(files: Files, clock: Clock) -> None:
    ids = []
    for _ in range(4):
        clock.now_s += 1
        ids.append(add(files).id)
    newest, more = files.page(Wanted(ME, limit=2))
    assert ([file.id for file in newest], more) == (ids[:1:-1], True)
    rest, more = files.page(Wanted(ME, after=newest[-1].id, limit=2))
    assert ([file.id for file in rest], more) == (ids[1::-1], False)
    oldest, _ = files.page(Wanted(ME, after=ids[0], order="asc", limit=1))
    assert [file.id for file in oldest] == [ids[1]]
    assert files.page(Wanted(YOU)) == ([], False)
    assert files.page(Wanted(None, purpose="batch")) == ([], False)


def test_what_a_crash_leaves_between_bytes_and_row_is_removed(files: Files) -> None:
    kept = add(files, b"kept")
    for data in (b"orphan", b"kept"):
        incoming = files.store.begin(100)
        incoming.write(data)
        ref = incoming.seal().ref
        incoming.place()
        os.utime(files.store.path(ref), (0, 0))
    files.prune()
    assert content(files) == [kept.ref.removeprefix("sha256:")]


def test_a_row_that_cannot_be_written_leaves_no_bytes_that_count(files: Files, database: Database) -> None:
    file = add(files)
    with files.changing() as session:
        rows = session.exec(select(FileRow).where(col(FileRow.id) == file.id)).all()
        assert [row.ref for row in rows] == [file.ref]
    incoming = files.begin(ME, 100)
    incoming.write(b"twice")
    with pytest.raises(Exception, match="UNIQUE"):
        files.add(incoming, NewFile(ME, "a", "batch", name=file.id))
    with database.read() as session:
        assert files.used_bytes(session, ME) == 4


def test_expiry_of_thousands_at_once(files: Files, clock: Clock, database: Database) -> None:
    one = add(files, lasts_s=1)
    with database.write() as session:
        rows = [
            FileRow(**(files.row_for(NewFile(ME, "a", "batch", lasts_s=1), f"sha256:{n:064x}", 1).model_dump()))
            for n in range(1500)
        ]
        session.add_all(rows)
    clock.now_s += 2
    assert files.prune() == 1501
    with pytest.raises(NotFound):
        files.get(one.id, None)
