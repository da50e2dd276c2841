"""Forms that are in memory: fields, files, and what is no form."""

import pytest

from api.media.parts import FIELD_BYTES, FormFile, parse_parts
from infra.errors import InvalidRequest

KIND = "multipart/form-data; boundary=xyz"


def form(*parts: tuple[str, bytes], end: bytes = b"--xyz--\r\n") -> bytes:
    """A body; each part is its disposition and its content."""
    made = [
        b"--xyz\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (words.encode(), data) for words, data in parts
    ]
    return b"".join(made) + end


def test_fields_and_files_in_their_order() -> None:
    body = form(
        ('name="dpi"', b"100"),
        ('name="files"; filename="a.png"', b"\0\r\n--x"),
        ('name="dpi"', b"200"),
        ('name="files"; filename="b.png"', b""),
    )
    parts = parse_parts(KIND, body, 4)
    assert parts.fields == {"dpi": "200"}
    assert parts.files == [FormFile("files", "a.png", b"\0\r\n--x"), FormFile("files", "b.png", b"")]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b"--xyz--"),
        (KIND, b""),
        (KIND, b"junk"),
        (KIND, form(('name="a"', b"1"), end=b"")),
        (KIND, form(("", b"1"))),
        (KIND, form(*[('name="a"', b"1")] * 5)),
        (KIND, form(('name="a"', b"x" * (FIELD_BYTES + 1)))),
    ],
)
def test_what_is_no_whole_form_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_parts(kind, body, 4)


def test_as_much_as_is_taken() -> None:
    body = form(('name="b"', b"x" * FIELD_BYTES), *[('name="a"; filename="x"', bytes(1 << 20))] * 3)
    parts = parse_parts(KIND, body, 4)
    assert parts.fields == {"b": "x" * FIELD_BYTES}
    assert parts.files == [FormFile("a", "x", bytes(1 << 20))] * 3
