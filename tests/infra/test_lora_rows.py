"""Whose adapters they are, what they are called, and when their bytes go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.database import Database, open_database
from infra.errors import Conflict, Forbidden, InvalidRequest, NotFound
from infra.file_rows import Files, NewFile
from infra.file_store import FileStore
from infra.lora_rows import Lora, Loras, NewLora
from infra.migrate import migrate
from infra.sections import FilesSettings
from infra.tokens import Key
from infra.types import KeyName

ME, YOU = Key(KeyName("me"), "user"), Key(KeyName("you"), "user")
ADMIN, OTHER_ADMIN = Key(KeyName("boss"), "admin"), Key(KeyName("chief"), "admin")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/home/coderai.db")
    migrate(opened)
    yield opened
    opened.close()


@pytest.fixture
def loras(database: Database, tmp_path: Path) -> Loras:
    return Loras(Files(database, FileStore(tmp_path / "files"), FilesSettings()))


def add(
    loras: Loras, key: Key, data: bytes = b"data", name: str | None = None, base: str | None = None
) -> tuple[Lora, bool]:
    incoming = loras.files.begin(key.name, 1 << 20)
    incoming.write(data)
    return loras.add(incoming, NewLora(key, 4, name, base))


def kept(loras: Loras) -> int:
    return sum(path.is_file() for path in loras.files.store.root.rglob("*"))


def test_an_adapter_is_found_by_its_name_and_by_its_content(loras: Loras) -> None:
    lora, existed = add(loras, ME, name="style", base="sd15")
    assert (lora.name, lora.base_model, lora.rank, lora.size_bytes, existed) == ("style", "sd15", 4, 4, False)
    assert not lora.shared
    for wanted in ("style", "name:style", lora.ref):
        assert loras.find(wanted, ME) == lora
    assert loras.content(lora.ref, ME).read_bytes() == b"data"
    assert loras.all(ME) == [lora]


def test_the_same_once_more_is_the_same(loras: Loras) -> None:
    first, _existed = add(loras, ME)
    assert add(loras, ME) == (first, True)
    named, existed = add(loras, ME, name="style")
    assert (existed, named.name, named.ref) == (True, "style", first.ref)
    assert add(loras, ME, name="style", base="sdxl")[0].base_model == "sdxl"
    assert add(loras, ME)[0].name == "style"
    assert len(loras.all(ME)) == 1
    assert add(loras, ME, name="second")[1]
    assert len(loras.all(ME)) == 2
    assert kept(loras) == 1


def test_nobody_sees_another_s(loras: Loras) -> None:
    mine, _existed = add(loras, ME, name="style")
    for wanted in ("style", "name:style", mine.ref):
        for reach in (loras.find, loras.delete):
            with pytest.raises(NotFound, match="for this key"):
                reach(wanted, YOU)
    with pytest.raises(NotFound):
        loras.content(mine.ref, YOU)
    assert loras.all(YOU) == []
    assert add(loras, YOU)[1] is False, "what another key has is not told"
    assert loras.find(mine.ref, YOU).key == "you"
    assert loras.find("style", ADMIN) == mine


def test_an_admin_s_name_is_everybody_s_and_the_own_comes_first(loras: Loras) -> None:
    shared, _existed = add(loras, ADMIN, b"shared", "style")
    add(loras, ADMIN, b"unnamed")
    assert shared.shared
    assert loras.find("style", YOU) == shared
    assert loras.find(shared.ref, YOU) == shared
    assert loras.all(YOU) == [shared]
    with pytest.raises(Forbidden, match="administrator's"):
        loras.delete("style", YOU)
    own, _existed = add(loras, YOU, b"own", "style")
    assert loras.find("style", YOU) == own
    assert loras.find("style", ME) == shared
    assert loras.delete("style", YOU) == "style"
    assert loras.find("style", YOU) == shared
    with pytest.raises(Conflict, match="remove it first"):
        add(loras, OTHER_ADMIN, b"different", "style")
    assert loras.delete("style", OTHER_ADMIN) == "style"
    assert [lora.name for lora in loras.all(ADMIN)] == [None]


def test_a_name_is_one_adapter_s(loras: Loras) -> None:
    add(loras, ME, b"one", "style")
    with pytest.raises(Conflict, match="other content"):
        add(loras, ME, b"two", "style")
    assert add(loras, YOU, b"two", "style")[0].name == "style"
    assert kept(loras) == 2, "nothing of what was refused"


def test_bytes_go_with_the_last_that_has_them(loras: Loras) -> None:
    lora, _existed = add(loras, ME, name="one")
    add(loras, ME, name="two")
    add(loras, YOU)
    assert loras.delete("one", ME) == "one"
    assert loras.delete(lora.ref, ME) == "two"
    assert kept(loras) == 1
    assert loras.delete(lora.ref, YOU) == lora.ref
    assert kept(loras) == 0


def test_files_and_adapters_share_content_and_quota(database: Database, tmp_path: Path) -> None:
    files = Files(database, FileStore(tmp_path / "files"), FilesSettings(quota_per_key_mb=1))
    loras = Loras(files)
    lora, _existed = add(loras, ME, b"x" * 600_000)
    incoming = files.begin(ME.name, 1 << 20)
    incoming.write(b"x" * 400_000)
    file = files.add(incoming, NewFile(ME.name, "a", "user_data"))
    with pytest.raises(InvalidRequest, match="delete some"):
        add(loras, ME, b"y" * 100_000)
    assert kept(loras) == 2
    files.delete(file.id, ME.name)
    files.prune()
    assert kept(loras) == 1
    assert loras.content(lora.ref, ME).stat().st_size == 600_000


def test_content_that_is_lost_is_said(loras: Loras) -> None:
    lora, _existed = add(loras, ME)
    loras.files.store.remove(lora.ref)
    with pytest.raises(NotFound, match="send it again"):
        loras.content(lora.ref, ME)


BAD_NAMES = [
    "",
    "a b",
    "../up",
    "a/b",
    ".hidden",
    "name:x",
    "sha256:abc",
    "x" * 101,
    "upload",
    "blob",
    "a\n",
    "é",
    "a\0",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_has_plain_characters(loras: Loras, name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be called"):
        add(loras, ME, name=name)
    with pytest.raises(NotFound):
        loras.find(name, ME)
    assert kept(loras) == 0


def test_a_base_model_can_be_shown(loras: Loras) -> None:
    for base in ("x" * 201, "a\nb", "a\0"):
        with pytest.raises(InvalidRequest, match="base_model"):
            add(loras, ME, base=base)


def test_near_names_are_told(loras: Loras) -> None:
    add(loras, ME, b"1", "watercolour")
    add(loras, YOU, b"2", "watercolor-secret")
    with pytest.raises(NotFound, match=r"near names: watercolour\. GET") as missing:
        loras.find("name:watercolor", ME)
    assert (missing.value.code, missing.value.param) == ("lora_not_found", "loras")
