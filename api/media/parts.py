"""A `multipart/form-data` body that is in memory already, as fields and files."""

import dataclasses
from dataclasses import dataclass
from typing import Final

from api.multipart import FormReader, Part, Write

FIELD_BYTES: Final = 64 << 10
"""The longest value of a field that is no file."""


@dataclass(frozen=True, slots=True)
class FormFile:
    """One file: the field it came in, and the name that its sender gives it, which is no path of ours."""

    field: str
    filename: str
    data: bytes = dataclasses.field(repr=False)


@dataclass(frozen=True, slots=True)
class Parts:
    """What has come, in its order; a field that comes several times has its last value."""

    fields: dict[str, str]
    files: list[FormFile]


def parse_parts(content_type: str | None, body: bytes, most: int) -> Parts:
    """The body's parts, at most `most` of them; those with a file's name are files.

    Raises:
        InvalidRequest: it is no whole form, or goes over a limit.
    """
    gathered = _Gathered()
    reader = FormReader(content_type, gathered, most_parts=most, field_bytes=FIELD_BYTES)
    reader.feed(body)
    reader.finish()
    return gathered.parts()


class _Gathered:
    """The sink of such a form."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}
        self._files: list[tuple[str, str, list[bytes]]] = []

    def file(self, part: Part) -> Write | None:
        """See `api.multipart.Sink`."""
        if part.filename is None:
            return None
        pieces: list[bytes] = []
        self._files.append((part.name, part.filename, pieces))
        return pieces.append

    def field(self, name: str, value: str) -> None:
        """See `api.multipart.Sink`."""
        self._fields[name] = value

    def parts(self) -> Parts:
        """What has come."""
        return Parts(self._fields, [FormFile(name, filename, b"".join(of)) for name, filename, of in self._files])
