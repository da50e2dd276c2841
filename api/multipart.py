"""`multipart/form-data`, in whatever pieces it comes: fields are kept, the bytes of files are passed on. The parsing is
python-multipart's; the limits are ours."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from infra.errors import InvalidRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELD_BYTES: Final = 4096
"""The longest value of a field beside a file that goes to the disk."""
FIELDS: Final = 16
"""The most parts of such a body."""
_KIND: Final = b"multipart/form-data"
_HEADERS: Final = 8
_HEADER_BYTES: Final = 2048
_DEFAULT_TYPE: Final = "application/octet-stream"

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # what is wrong with a body is told to its sender

Write = Callable[[bytes], object]
"""Takes the next bytes of a file."""


class Part(NamedTuple):
    """What a part says of itself; `filename` is as the client sent it, and no path of ours."""

    name: str
    filename: str | None
    media_type: str


class Sink(Protocol):
    """Takes what comes, in its order."""

    def file(self, part: Part) -> Write | None:
        """A part begins: what takes its bytes if it is a file, None if it is a field.

        Raises:
            InvalidRequest: it may not come here, or not again.
        """
        ...

    def field(self, name: str, value: str) -> None:
        """A field is whole."""
        ...


def is_form(content_type: str | None) -> bool:
    """Whether a body of this type is a form."""
    return parse_options_header(content_type)[0] == _KIND


class FormReader:
    """Reads one body; nothing of it is held but the field that is coming.

    Blocks as the sink does, so it belongs in a thread.
    """

    def __init__(
        self, content_type: str | None, sink: Sink, *, most_parts: int = FIELDS, field_bytes: int = FIELD_BYTES
    ) -> None:
        """See the class; `field_bytes` bounds each field.

        Raises:
            InvalidRequest: the content type is another, or has no boundary.
        """
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != _KIND or not boundary:
            raise InvalidRequest(
                "the request's body must be multipart/form-data with a boundary; clients of OpenAI's API send it so",
                code="invalid_content_type",
            )
        self._sink = sink
        self._most_parts = most_parts
        self._field_bytes = field_bytes
        self._ended = False
        self._parts = 0
        self._beside_bytes = 0
        self._most_beside_bytes = most_parts * (field_bytes + _HEADERS * _HEADER_BYTES)
        self._header = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._name = ""
        self._write: Write | None = None
        self._data = bytearray()
        try:
            self._parser = MultipartParser(
                boundary, self._callbacks(), max_header_count=_HEADERS, max_header_size=_HEADER_BYTES
            )
        except FormParserError as error:
            raise _malformed(str(error)) from error

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body.

        Raises:
            InvalidRequest: they are no such body, or go over a limit; and whatever the sink raises.
        """
        self._beside_bytes += len(data)
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _malformed(str(error)) from error
        if self._beside_bytes > self._most_beside_bytes:  # what stands before the first boundary, or after the last
            raise _malformed(f"it has more than {self._most_beside_bytes} bytes besides its files")

    def finish(self) -> None:
        """The body is over.

        Raises:
            InvalidRequest: it broke off.
        """
        if not self._ended:
            raise _malformed("it ends before its last boundary")

    def _callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._part_begins,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._part_data,
            "on_part_end": self._part_ends,
            "on_end": self._body_ends,
        }

    def _part_begins(self) -> None:
        self._parts += 1
        if self._parts > self._most_parts:
            raise _malformed(f"it has more than {self._most_parts} parts")
        self._headers.clear()
        self._data.clear()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_ends(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _headers_end(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._name = _text(options.get(b"name", b""))
        if kind != b"form-data" or not self._name:
            raise _malformed("one of its parts has no name")
        # Browsers write a quotation mark as %22, after the HTML standard.
        filename = _text(options[b"filename"]).replace("%22", '"') if b"filename" in options else None
        media_type = _text(self._headers.get(b"content-type", b""))[:100] or _DEFAULT_TYPE
        self._write = self._sink.file(Part(self._name, filename, media_type))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._write is not None:
            self._beside_bytes -= end - start
            self._write(data[start:end])
            return
        self._data += data[start:end]
        if len(self._data) > self._field_bytes:
            name = self._name[:100]
            raise InvalidRequest(f"the field {name!r} is over {self._field_bytes} bytes", param=name)

    def _part_ends(self) -> None:
        if self._write is None:
            self._sink.field(self._name, _text(bytes(self._data)))

    def _body_ends(self) -> None:
        self._ended = True


@dataclass(slots=True)
class Form:
    """A form with at most one file: its fields, and what the file's part says of itself."""

    fields: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    """Fields whose name ends in `[]`, which may come several times."""
    has_file: bool = False
    filename: str | None = None
    media_type: str = _DEFAULT_TYPE


class OneFile:
    """The sink of such a form: the file is the part called `file_field`, and its bytes go to `write` as they come."""

    def __init__(self, file_field: str, write: Write) -> None:
        self.form = Form()
        self._file_field = file_field
        self._write = write

    def file(self, part: Part) -> Write | None:
        """See `Sink`."""
        form, is_file = self.form, part.name == self._file_field
        if part.name in form.fields or (is_file and form.has_file):
            raise InvalidRequest(f"the body has {part.name[:100]!r} twice: send it once", param=part.name[:100])
        if not is_file:
            return None
        form.has_file, form.filename, form.media_type = True, part.filename, part.media_type
        return self._write

    def field(self, name: str, value: str) -> None:
        """See `Sink`."""
        if name.endswith("[]"):
            self.form.lists.setdefault(name, []).append(value)
        else:
            self.form.fields[name] = value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"the request's body is no whole multipart/form-data: {why[:200]}", code="invalid_multipart")
