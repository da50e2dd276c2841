"""A `multipart/form-data` body that is in memory already, as fields and files. The parsing is python-multipart's."""

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from infra.errors import InvalidRequest

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELD_BYTES: Final = 64 << 10
"""The longest value of a field that is no file."""
_HEADERS: Final = 8
_HEADER_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class FormFile:
    """One file: the field it came in, and the name that its sender gives it, which is no path of ours."""

    field: str
    filename: str
    data: bytes = dataclasses.field(repr=False)


@dataclass(slots=True)
class Parts:
    """What has come, in its order; a field that comes several times has its last value."""

    fields: dict[str, str] = field(default_factory=dict)
    files: list[FormFile] = field(default_factory=list)


def is_form(content_type: str | None) -> bool:
    """Whether a body of this type is a form."""
    return parse_options_header(content_type)[0] == b"multipart/form-data"


def parse_parts(content_type: str | None, body: bytes, most: int) -> Parts:
    """The body's parts, at most `most` of them.

    Raises:
        InvalidRequest: it is no whole form, or goes over a limit.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    reader = _Reader(most)
    try:
        parser = MultipartParser(boundary, reader.callbacks(), max_header_count=_HEADERS, max_header_size=_HEADER_BYTES)
        parser.write(body)
    except FormParserError as error:
        raise _malformed(str(error)[:200]) from error
    if not reader.ended:
        raise _malformed("it ends before its last boundary")
    return reader.parts


class _Reader:
    """Gathers what the parser tells."""

    def __init__(self, most: int) -> None:
        self.parts = Parts()
        self.ended = False
        self._left = most
        self._most = most
        self._name = self._value = b""
        self._disposition = b""
        self._data = bytearray()

    def callbacks(self) -> "MultipartCallbacks":
        """What the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._part_data,
            "on_part_end": self._end,
            "on_end": self._whole,
        }

    def _begin(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _malformed(f"it has more than {self._most} parts")
        self._disposition = b""
        self._data = bytearray()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def _end(self) -> None:
        kind, options = parse_options_header(self._disposition)
        name = _text(options.get(b"name", b""))
        if kind != b"form-data" or not name:
            raise _malformed("one of its parts has no name")
        if b"filename" in options:
            self.parts.files.append(FormFile(name, _text(options[b"filename"]), bytes(self._data)))
            return
        if len(self._data) > FIELD_BYTES:
            raise InvalidRequest(f"the field {name[:100]!r} is over {FIELD_BYTES} bytes", param=name[:100])
        self.parts.fields[name] = _text(bytes(self._data))

    def _whole(self) -> None:
        self.ended = True


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"the request's body is no whole multipart/form-data: {why}", code="invalid_multipart")
