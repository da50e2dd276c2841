"""`multipart/form-data` as it comes: small fields are kept, the one file's bytes are passed on. No body is ever whole
in memory. The parsing is python-multipart's; the limits are ours."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from infra.errors import InvalidRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELD_BYTES = 4096
"""The longest value of a field that is no file."""
FIELDS = 16
"""The most parts of one body."""
_HEADERS = 8
_HEADER_BYTES = 2048
_DEFAULT_TYPE = "application/octet-stream"

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # what is wrong with a body is told to its sender


@dataclass(slots=True)
class Form:
    """What has come: the fields, and what the file's part said of itself. `filename` is as the client sent it."""

    fields: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    """Fields whose name ends in `[]`, which may come several times."""
    has_file: bool = False
    filename: str | None = None
    media_type: str = _DEFAULT_TYPE


class FormReader:
    """Reads one body with at most one file, the part called `file_field`, whose bytes go to `write` as they come.

    Blocks as `write` does, so it belongs in a thread.
    """

    def __init__(self, content_type: str | None, file_field: str, write: Callable[[bytes], None]) -> None:
        """See the class.

        Raises:
            InvalidRequest: the content type is another, or has no boundary.
        """
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise InvalidRequest(
                "the request's body must be multipart/form-data with a boundary; clients of OpenAI's API send it so",
                code="invalid_content_type",
            )
        self._file_field = file_field
        self._write = write
        self._form = Form()
        self._ended = False
        self._parts = 0
        self._header = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._name: str | None = None
        self._data = bytearray()
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._part_begins,
            "on_header_field": lambda data, start, end: self._add_header(data[start:end], b""),
            "on_header_value": lambda data, start, end: self._add_header(b"", data[start:end]),
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._part_data,
            "on_part_end": self._part_ends,
            "on_end": self._body_ends,
        }
        try:
            self._parser = MultipartParser(
                boundary, callbacks, max_header_count=_HEADERS, max_header_size=_HEADER_BYTES
            )
        except FormParserError as error:
            raise _malformed(error) from error

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body.

        Raises:
            InvalidRequest: they are no such body, or go over a limit; and whatever `write` raises.
        """
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _malformed(error) from error

    def finish(self) -> Form:
        """What has come, when the body is over.

        Raises:
            InvalidRequest: it broke off.
        """
        if not self._ended:
            raise InvalidRequest("the body ends before its last boundary: send it whole", code="invalid_multipart")
        return self._form

    def _part_begins(self) -> None:
        self._parts += 1
        if self._parts > FIELDS:
            raise InvalidRequest(f"the body has more than {FIELDS} parts", code="invalid_multipart")
        self._headers.clear()
        self._data.clear()
        self._name = None

    def _add_header(self, name: bytes, value: bytes) -> None:
        self._header += name
        self._value += value

    def _header_ends(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _headers_end(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition"))
        if kind != b"form-data" or b"name" not in options:
            raise InvalidRequest("a part of the body has no name", code="invalid_multipart")
        self._name = name = _text(options[b"name"])
        if name in self._form.fields or (name == self._file_field and self._form.has_file):
            raise InvalidRequest(f"the body has {name[:100]!r} twice: send it once", param=name[:100])
        if name == self._file_field:
            self._form.has_file = True
            # Browsers write a quotation mark as %22, after the HTML standard.
            self._form.filename = _text(options[b"filename"]).replace("%22", '"') if b"filename" in options else None
            self._form.media_type = _text(self._headers.get(b"content-type", b""))[:100] or _DEFAULT_TYPE

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == self._file_field:
            self._write(data[start:end])
            return
        self._data += data[start:end]
        if len(self._data) > FIELD_BYTES:
            raise InvalidRequest(
                f"the field {str(self._name)[:100]!r} is over {FIELD_BYTES} bytes", param=str(self._name)[:100]
            )

    def _part_ends(self) -> None:
        if self._name is not None and self._name.endswith("[]"):
            self._form.lists.setdefault(self._name, []).append(_text(bytes(self._data)))
        elif self._name is not None and self._name != self._file_field:
            self._form.fields[self._name] = _text(bytes(self._data))

    def _body_ends(self) -> None:
        self._ended = True


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _malformed(error: FormParserError) -> InvalidRequest:
    return InvalidRequest(f"the body is no multipart/form-data: {str(error)[:200]}", code="invalid_multipart")
