"""Parts: kept only if they are of the same file, held by one, never written after they are closed."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import Conflict
from infra.partial import Part, PartNote

NOTE = PartNote(url="http://x/model")


def opened(target: Path, note: PartNote = NOTE) -> Part:
    part = Part(target, note)
    part.open()
    return part


def left_behind(target: Path, etag: str | None, note: PartNote = NOTE) -> None:
    part = opened(target, note)
    part.restart(etag)
    part.append(b"12345")
    part.close()


@pytest.mark.parametrize(
    ("etag", "before", "after", "kept_bytes"),
    [
        ('"a"', NOTE, NOTE, 5),
        (None, NOTE, NOTE, 0),
        ('"a"', NOTE, PartNote(url="http://x/other"), 0),
        (None, PartNote(url="u", sha256="1"), PartNote(url="u", sha256="1"), 5),
        (None, PartNote(url="u", sha256="1"), PartNote(url="of another revision", sha256="1"), 5),
        (None, PartNote(url="u", sha256="1"), PartNote(url="u", sha256="2"), 0),
    ],
)
def test_what_is_kept(tmp_path: Path, etag: str | None, before: PartNote, after: PartNote, kept_bytes: int) -> None:
    left_behind(tmp_path / "model", etag, before)
    part = opened(tmp_path / "model", after)
    assert part.done_bytes == kept_bytes
    part.close()


@pytest.mark.parametrize("spoiled", [b"", b"{", b'{"url": "http://x/model", "unknown": 1}'])
def test_a_spoiled_note_begins_anew(tmp_path: Path, spoiled: bytes) -> None:
    left_behind(tmp_path / "model", '"a"')
    (tmp_path / "model.part.json").write_bytes(spoiled)
    part = opened(tmp_path / "model")
    assert part.done_bytes == 0
    part.close()


def test_a_whole_part_gets_its_name(tmp_path: Path) -> None:
    part = opened(tmp_path / "deep" / "model")
    part.append(b"hello")
    assert part.finish("0" * 64) == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert not (tmp_path / "deep" / "model").exists()
    assert part.finish(None) is None
    assert (tmp_path / "deep" / "model").read_bytes() == b"hello"
    part.close()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


def test_one_process_holds_a_part_until_it_ends(tmp_path: Path) -> None:
    held = "opened(Path(sys.argv[1])); print('held', flush=True); input()"
    code = f"import sys; from tests.infra.test_partial import *; {held}"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "model")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Conflict, match="model is being downloaded already"):
            opened(tmp_path / "model")
        holder.kill()
    opened(tmp_path / "model").close()


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    part = opened(tmp_path / "model")
    part.append(b"one")
    part.close()
    part.append(b"two")
    part.restart('"x"')
    part.discard()
    assert part.finish(None) is None
    assert (tmp_path / "model.part").read_bytes() == b"one"
    late = Part(tmp_path / "late", NOTE)
    late.close()
    late.open()
    assert not (tmp_path / "late.part").exists()


def test_a_link_in_the_parts_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"x")
    (tmp_path / "model.part").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"model\.part"):
        opened(tmp_path / "model")
    assert (tmp_path / "precious").read_bytes() == b"x"
