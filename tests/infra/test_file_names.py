"""Names for people, ids that sort by age, and names that nobody can guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import InvalidRequest
from infra.file_names import MOST_CHARS, is_file_id, new_generated_name, new_id, plain_filename


def test_ids_sort_by_age() -> None:
    ids = [new_id("file-", at_s) for at_s in (0.0, 1.0, 1.001, 1_800_000_000.0, 1_800_000_000.002)]
    assert sorted(ids) == ids
    assert all(map(is_file_id, ids))
    assert len({new_id("file-", 1.0) for _ in range(100)}) == 100


@pytest.mark.parametrize("text", ["", "file-", "file-x", "file-" + "0" * 27, "file-" + "A" * 28, "image-" + "0" * 28])
def test_what_is_no_id(text: str) -> None:
    assert not is_file_id(text)


def test_generated_names() -> None:
    name = new_generated_name("image", "png")
    assert name.startswith("image-")
    assert name.endswith(".png")
    assert not is_file_id(name)
    for kind, suffix in (("file", "png"), ("../x", "png"), ("image", "p/g"), ("", "png"), ("image", "")):
        with pytest.raises(ValueError, match="small letters"):
            new_generated_name(kind, suffix)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("a.txt", "a.txt"),
        (" a b.txt ", "a b.txt"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\a", "a"),
        (".env", ".env"),
        ("a\r\nSet-Cookie: x", "a__Set-Cookie: x"),
        ("y" * 300, "y" * MOST_CHARS),
    ],
)
def test_what_is_kept_of_a_name(sent: str, kept: str) -> None:
    assert plain_filename(sent) == kept


@given(st.text())
def test_any_name_is_harmless_or_refused(sent: str) -> None:
    try:
        kept = plain_filename(sent)
    except InvalidRequest:
        return
    assert 0 < len(kept) <= MOST_CHARS
    assert not set(kept) & set("/\\\0\r\n")
    kept.encode()
