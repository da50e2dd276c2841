"""Bodies as browsers, clients and attackers write them, in pieces of every size."""

import tracemalloc
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.multipart import FIELD_BYTES, FIELDS, Form, FormReader, OneFile, Part, Write, is_form
from infra.errors import InvalidRequest

TYPE = "multipart/form-data; boundary=xyz"
FILE = 'form-data; name="file"; filename="a.txt"'
END = b"--xyz--\r\n"
TRICKY = (b"--xyz", b"\r\n--xy", b"\r\n--xyz", b"--xyz--", b"\r\n", b"-", b"\r", bytes(range(256)))
"""What a file may have in it, if no line begins with the boundary."""


def part(disposition: str, data: bytes, *headers: str) -> bytes:
    head = "\r\n".join((f"Content-Disposition: {disposition}", *headers)).encode()
    return b"--xyz\r\n" + head + b"\r\n\r\n" + data + b"\r\n"


def read(body: bytes, piece_bytes: int = 1 << 20, content_type: str | None = TYPE) -> tuple[Form, bytes]:
    got = bytearray()
    sink = OneFile("file", got.extend)
    reader = FormReader(content_type, sink)
    for at in range(0, len(body), piece_bytes):
        reader.feed(body[at : at + piece_bytes])
    reader.finish()
    return sink.form, bytes(got)


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 64, 1 << 20])
def test_fields_and_a_file_in_pieces(piece_bytes: int) -> None:
    data = b"--xy\r\n--xy \r\n\r\n--" + bytes(range(256))
    body = part('form-data; name="purpose"', b"batch") + part(FILE, data, "Content-Type: text/csv") + b"--xyz--\r\n"
    form, got = read(body, piece_bytes)
    assert (form.fields, form.has_file, form.filename, form.media_type) == (
        {"purpose": "batch"}, True, "a.txt", "text/csv",
    )  # fmt: skip
    assert got == data


class Told:
    """A sink that writes down what it is told; parts with a file's name are files."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str | None, str, bytearray]] = []

    def file(self, part: Part) -> Write | None:
        if part.filename is None:
            return None
        self.parts.append((*part, data := bytearray()))
        return data.extend

    def field(self, name: str, value: str) -> None:
        self.parts.append((name, None, "", bytearray(value.encode())))


def told(body: bytes, cuts: Collection[int]) -> list[tuple[str, str | None, str, bytearray]]:
    sink = Told()
    reader = FormReader(TYPE, sink)
    at = 0
    for cut in (*sorted(cuts), len(body)):
        reader.feed(body[at:cut])
        at = cut
    reader.finish()
    return sink.parts


@settings(deadline=None)
@given(
    data=st.lists(st.sampled_from(TRICKY), max_size=6).map(b"".join).filter(lambda data: b"\r\n--xyz" not in data),
    text=st.text(max_size=20).filter(lambda text: "\n--xyz" not in text),
    padded=st.booleans(),
    cuts=st.sets(st.integers(min_value=0, max_value=200), max_size=20),
)
def test_any_cut_gives_the_same_parts(data: bytes, text: str, padded: bool, cuts: set[int]) -> None:
    body = (
        (b"\r\n" if padded else b"")
        + part('form-data; name="a"', text.encode())
        + part('form-data; name="f"; filename="é.bin"', data, "Content-Type: text/csv")
        + part(FILE, b"", "X: 1")
        + END
        + (b"\r\nmore" if padded else b"")
    )
    whole = [
        ("a", None, "", bytearray(text.encode())),
        ("f", "é.bin", "text/csv", bytearray(data)),
        ("file", "a.txt", "application/octet-stream", bytearray()),
    ]
    assert told(body, {cut for cut in cuts if cut < len(body)}) == whole
    assert told(body, range(1, len(body))) == whole


def test_names_in_utf_8_in_latin_1_and_with_quotes() -> None:
    for sent in (
        'form-data; name="file"; filename="grüße \\"x\\".txt"',
        'form-data; name="file"; filename="grüße %22x%22.txt"',
    ):
        body = part(sent, b"") + END
        assert read(body)[0].filename == 'grüße "x".txt'
        assert read(body.decode().encode("latin-1"))[0].filename == 'grüße "x".txt'


def test_as_much_as_is_taken() -> None:
    fields = [part(f'form-data; name="{n}"', b"x" * FIELD_BYTES, *["X: " + "y" * 2000] * 7) for n in range(FIELDS - 1)]
    form, got = read(b"".join(fields) + part(FILE, bytes(1 << 20)) + END, 1 << 16)
    assert form.fields == {str(n): "x" * FIELD_BYTES for n in range(FIELDS - 1)}
    assert len(got) == 1 << 20


@pytest.mark.parametrize("start", [b"\r\n", part(FILE, b"abc") + END])
def test_a_body_that_never_begins_or_never_ends(start: bytes) -> None:
    """What stands around the parts is passed over, but not for ever."""
    reader = FormReader(TYPE, Told())
    reader.feed(start)
    for _ in range(4):
        reader.feed(b"\r\n" * (1 << 15))
    with pytest.raises(InvalidRequest, match="bytes besides its files"):
        reader.feed(b"\r\n" * (1 << 16))


def test_what_says_that_it_is_a_form() -> None:
    assert is_form(TYPE)
    assert is_form("Multipart/Form-Data")
    assert not is_form("application/json")
    assert not is_form(None)


def test_a_file_without_a_name_is_told_apart() -> None:
    form, got = read(part('form-data; name="file"', b"abc") + b"--xyz--")
    assert (form.has_file, form.filename, got) == (True, None, b"abc")


@pytest.mark.parametrize(
    ("content_type", "body", "words"),
    [
        (None, b"", "must be multipart"),
        ("application/json", b"{}", "must be multipart"),
        ("multipart/form-data", b"", "must be multipart"),
        ("multipart/form-data; boundary=" + "b" * 400, b"", "no whole multipart"),
        (TYPE, b"", "ends before"),
        (TYPE, b"hello", "no whole multipart"),
        (TYPE, part(FILE, b"abc"), "ends before"),
        (TYPE, part(FILE, b"abc")[:-3], "ends before"),
        (TYPE, part("attachment", b"abc"), "no name"),
        (TYPE, part('form-data; name=""', b"abc"), "no name"),
        (TYPE, part('form-data; filename="a"', b"abc"), "no name"),
        (TYPE, b"--xyz\r\n\r\nabc\r\n--xyz--", "no name"),
        (TYPE, part(FILE, b"1") + part(FILE, b"2"), "twice"),
        (TYPE, part('form-data; name="a"', b"1") * 2 + b"--xyz--", "twice"),
        (TYPE, b"".join(part(f'form-data; name="{n}"', b"") for n in range(FIELDS + 1)), "more than"),
        (TYPE, part('form-data; name="a"', b"x" * (FIELD_BYTES + 1)), "is over"),
        (TYPE, part(FILE, b"", "X: " + "y" * 5000), "no whole multipart"),
        (TYPE, part(FILE, b"", *(f"X{n}: 1" for n in range(50))), "no whole multipart"),
    ],
)
def test_what_is_refused(content_type: str | None, body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read(body, 50, content_type)


def test_nothing_is_gathered_in_memory() -> None:
    seen = 0

    def count(data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    reader = FormReader(TYPE, OneFile("file", count))
    reader.feed(part(FILE, b"")[:-2])
    piece = b"\r\n--xy" * 10_000
    tracemalloc.start()
    for _ in range(100):
        reader.feed(piece)
    _now, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(b"\r\n--xyz--")
    reader.finish()
    assert seen >= 100 * len(piece)
    assert peak_bytes < 1 << 20
