"""Files that are written as they come: whole or not at all, also when the process is killed in the midst."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infra import file_store
from infra.errors import DiskFull, NotFound, PayloadTooLarge
from infra.file_store import FileStore

DATA = b"hello" * 1000
REF = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "files")


def put(store: FileStore, data: bytes = DATA) -> str:
    incoming = store.begin(len(data))
    incoming.write(data[:10])
    incoming.write(memoryview(data)[10:])
    sealed = incoming.seal()
    incoming.place()
    assert (sealed.size_bytes, sealed.md5) == (len(data), hashlib.md5(data).hexdigest())
    return sealed.ref


def files(store: FileStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file()]


def test_content_has_its_hash_for_a_name_and_is_its_owner_s_alone(store: FileStore) -> None:
    assert put(store) == put(store) == REF
    (path,) = files(store)
    assert path == store.path(REF)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with store.open(REF) as file:
        assert file.read() == DATA
        store.remove(REF)
        file.seek(0)
        assert file.read() == DATA
    store.remove(REF)
    with pytest.raises(NotFound):
        store.open(REF)


@pytest.mark.parametrize("ref", ["", "sha256:", "sha256:../../x", REF.upper(), REF + "0", "md5:" + REF[7:]])
def test_what_is_no_reference(store: FileStore, ref: str) -> None:
    with pytest.raises(NotFound):
        store.path(ref)


def test_one_that_is_given_up_or_too_large_leaves_nothing(store: FileStore) -> None:
    incoming = store.begin(10, hint="send less")
    incoming.write(b"0123456789")
    with pytest.raises(PayloadTooLarge, match="send less"):
        incoming.write(b"0")
    assert len(files(store)) == 1
    incoming.discard()
    incoming.discard()
    assert files(store) == []


def test_a_full_disk_is_told_before_and_during(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "RESERVE_BYTES", 1 << 60)
    with pytest.raises(DiskFull):
        store.begin(10)
    monkeypatch.undo()
    incoming = store.begin(1 << 40)
    monkeypatch.setattr(file_store, "RESERVE_BYTES", 1 << 60)
    monkeypatch.setattr(file_store, "_LOOK_BYTES", 10)
    with pytest.raises(DiskFull):
        incoming.write(b"0123456789")
    incoming.discard()
    assert files(store) == []


_WRITER = """
import sys, time
from pathlib import Path
from infra.file_store import FileStore
incoming = FileStore(Path(sys.argv[1])).begin(1 << 30)
incoming.write(b"x" * (1 << 20))
print("half", flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_and_a_living_one_s_is_not(store: FileStore) -> None:
    argv = [sys.executable, "-c", _WRITER, str(store.root)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        (half,) = files(store)
        os.utime(half, (0, 0))
        assert store.clear_incoming() == 0
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
    assert store.clear_incoming() == 1
    assert files(store) == []


def test_a_file_that_is_just_being_made_is_left_alone(store: FileStore) -> None:
    (store.incoming / "young").touch()
    assert store.clear_incoming() == 0


def test_old_content_is_found_by_age(store: FileStore) -> None:
    put(store)
    other = put(store, b"other")
    os.utime(store.path(other), (0, 0))
    assert [refs for refs in store.older(60) if refs] == [{other}]


def test_letting_go_waits_for_who_still_writes(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    incoming = store.begin(100)
    writing, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow(descriptor: int, data: memoryview) -> int:
        writing.set()
        go_on.wait(10)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", slow)
    writer = threading.Thread(target=incoming.write, args=(b"x",))
    closer = threading.Thread(target=incoming.discard)
    writer.start()
    assert writing.wait(10)
    closer.start()
    closer.join(0.1)
    waits = closer.is_alive()
    go_on.set()
    writer.join()
    closer.join()
    assert waits, "its descriptor would be another file's by now"
    assert files(store) == []
