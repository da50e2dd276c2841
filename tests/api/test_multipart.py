"""Bodies as browsers, clients and attackers write them, in pieces of every size."""

import tracemalloc

import pytest

from api.multipart import FIELD_BYTES, FIELDS, Form, FormReader
from infra.errors import InvalidRequest

TYPE = "multipart/form-data; boundary=xyz"
FILE = 'form-data; name="file"; filename="a.txt"'


def part(disposition: str, data: bytes, *headers: str) -> bytes:
    head = "\r\n".join((f"Content-Disposition: {disposition}", *headers)).encode()
    return b"--xyz\r\n" + head + b"\r\n\r\n" + data + b"\r\n"


def read(body: bytes, piece_bytes: int = 1 << 20, content_type: str | None = TYPE) -> tuple[Form, bytes]:
    got = bytearray()
    reader = FormReader(content_type, "file", got.extend)
    for at in range(0, len(body), piece_bytes):
        reader.feed(body[at : at + piece_bytes])
    return reader.finish(), bytes(got)


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 64, 1 << 20])
def test_fields_and_a_file_in_pieces(piece_bytes: int) -> None:
    data = b"--xy\r\n--xy \r\n\r\n--" + bytes(range(256))
    body = part('form-data; name="purpose"', b"batch") + part(FILE, data, "Content-Type: text/csv") + b"--xyz--\r\n"
    form, got = read(body, piece_bytes)
    assert (form.fields, form.has_file, form.filename, form.media_type) == (
        {"purpose": "batch"}, True, "a.txt", "text/csv",
    )  # fmt: skip
    assert got == data


def test_names_in_utf_8_and_with_quotes() -> None:
    body = part('form-data; name="file"; filename="grüße \\"x\\".txt"', b"") + b"--xyz--"
    assert read(body)[0].filename == 'grüße "x".txt'


def test_a_file_without_a_name_is_told_apart() -> None:
    form, got = read(part('form-data; name="file"', b"abc") + b"--xyz--")
    assert (form.has_file, form.filename, got) == (True, None, b"abc")


@pytest.mark.parametrize(
    ("content_type", "body", "words"),
    [
        (None, b"", "must be multipart"),
        ("application/json", b"{}", "must be multipart"),
        ("multipart/form-data", b"", "must be multipart"),
        ("multipart/form-data; boundary=" + "b" * 400, b"", "no multipart"),
        (TYPE, b"", "ends before"),
        (TYPE, b"hello", "no multipart"),
        (TYPE, part(FILE, b"abc"), "ends before"),
        (TYPE, part(FILE, b"abc")[:-3], "ends before"),
        (TYPE, part("attachment", b"abc"), "no name"),
        (TYPE, b"--xyz\r\n\r\nabc\r\n--xyz--", "no name"),
        (TYPE, part(FILE, b"1") + part(FILE, b"2"), "twice"),
        (TYPE, part('form-data; name="a"', b"1") * 2 + b"--xyz--", "twice"),
        (TYPE, b"".join(part(f'form-data; name="{n}"', b"") for n in range(FIELDS + 1)), "more than"),
        (TYPE, part('form-data; name="a"', b"x" * (FIELD_BYTES + 1)), "is over"),
        (TYPE, part(FILE, b"", "X: " + "y" * 5000), "no multipart"),
        (TYPE, part(FILE, b"", *(f"X{n}: 1" for n in range(50))), "no multipart"),
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

    reader = FormReader(TYPE, "file", count)
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
