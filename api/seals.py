"""Texts that their owner keeps for us: encrypted with the install's own secret, each for one key. They are hidden from
others and cannot be changed; what is opened for its owner may be shown to it."""

import base64
import binascii
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from api.admin.sessions import signing_key
from infra.types import KeyName

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_PURPOSE: Final = b"coderai sealed text for "
_KEY_BYTES: Final = 32


class Seals:
    """Seals and opens them. What a key was given opens for it alone: other keys' texts, and changed ones, do not.

    Blocks, and the first one imports a library of its own: call it in a thread.
    """

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file

    def seal(self, text: str, owner: KeyName) -> str:
        """The text as its owner gets it, in URL-safe base64; the same text is sealed differently each time.

        Raises:
            SettingsInvalid: the file with the secret was damaged.
            DiskFull: the secret could not be made.
        """
        return self._cipher(owner).encrypt(text.encode()).decode()

    def open(self, sealed: str, owner: KeyName) -> str | None:
        """The text; None if it was not sealed here for this owner, or is not as it was.

        Raises:
            SettingsInvalid, DiskFull: as `seal`.
        """
        from cryptography.fernet import InvalidToken  # noqa: PLC0415  # for those who seal alone

        if not _canonical(sealed):
            return None
        try:
            return self._cipher(owner).decrypt(sealed).decode()
        except InvalidToken:
            return None

    def _cipher(self, owner: KeyName) -> "Fernet":
        from cryptography.fernet import Fernet  # noqa: PLC0415  # 50 ms, and a native library of some megabytes
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

        derived = HKDF(SHA256(), _KEY_BYTES, salt=None, info=_PURPOSE + owner.encode()).derive(self._secret)
        return Fernet(base64.urlsafe_b64encode(derived))

    @cached_property
    def _secret(self) -> bytes:
        return signing_key(self._key_file)


def _canonical(sealed: str) -> bool:
    """Whether it is base64 as it is written here: the decoder passes over strange characters, and over spare bits."""
    try:
        return base64.urlsafe_b64encode(base64.urlsafe_b64decode(sealed)).decode() == sealed
    except (ValueError, binascii.Error):
        return False
