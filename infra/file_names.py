"""Names and ids of files: ids that sort by age, and what is kept of a name that a client has sent."""

import re
import secrets
import unicodedata

from infra.errors import InvalidRequest
from infra.types import FileId

MOST_CHARS = 255
_FILE_ID = re.compile(r"file-[0-9a-f]{28}", re.ASCII)
_SUFFIX = re.compile(r"[a-z0-9]{1,8}", re.ASCII)
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode's categories of what no name needs: controls, marks that turn the text around, halves of characters."""


def new_id(prefix: str, at_s: float) -> str:
    """`prefix`, the moment in milliseconds and 64 random bits, in hex digits: in the order of their age."""
    return f"{prefix}{round(at_s * 1000):012x}{secrets.token_hex(8)}"


def new_generated_name(kind: str, suffix: str) -> FileId:
    """The name of a file that a model has made, such as `image-<32 hex digits>.png`; nobody can guess it.

    Raises:
        ValueError: the kind or the suffix is not of small letters and digits.
    """
    if not _SUFFIX.fullmatch(kind) or not _SUFFIX.fullmatch(suffix) or kind == "file":
        raise ValueError(f"a file's kind and suffix are small letters and digits, not {kind!r} and {suffix!r}")
    return FileId(f"{kind}-{secrets.token_hex(16)}.{suffix}")


def is_file_id(text: str) -> bool:
    """Whether this has the form of an uploaded file's id."""
    return _FILE_ID.fullmatch(text) is not None


def plain_filename(sent: str) -> str:
    """What is kept of a client's file name, for people: its last part, of characters that can be shown.

    It is never a path on any disk; but others may save a file under it.

    Raises:
        InvalidRequest: nothing is left of it.
    """
    last = re.split(r"[/\\]", sent)[-1]
    shown = "".join("_" if unicodedata.category(char) in _UNSHOWN else char for char in last).strip()
    if shown.strip("._ ") == "":
        raise InvalidRequest("the file has no name: send one, such as data.jsonl", param="filename")
    if len(shown) <= MOST_CHARS:
        return shown
    stem, dot, suffix = shown.rpartition(".")
    if not stem or len(suffix) > 16:
        return shown[:MOST_CHARS]
    return stem[: MOST_CHARS - len(suffix) - 1] + dot + suffix
