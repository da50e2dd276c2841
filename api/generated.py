"""Files that models have made: kept in the file store for some hours, fetched by an address with a signature."""

import hmac
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from itsdangerous import Signer
from sqlmodel import col, select

from api.admin.sessions import signing_key
from infra.clock import Clock, wall
from infra.errors import Forbidden
from infra.file_names import new_generated_name
from infra.file_rows import GENERATED, Files, NewFile
from infra.tables import FileRow
from infra.types import FileId, KeyName

FOLDER = "/v1/files/"
_SALT = "coderai generated file"


class GeneratedFiles:
    """Keeps them, and makes and checks their addresses. An address needs no key: who has it may fetch the file."""

    def __init__(self, files: Files, key_file: Path, now: Clock = wall) -> None:
        self._files = files
        self._key_file = key_file
        self._now = now

    def keep(self, key: KeyName, data: bytes, kind: str, suffix: str, media_type: str) -> FileId:
        """Keep what was made for a key and return its name, such as `image-….png`. Blocks: call it in a thread.

        Raises:
            InvalidRequest, DiskFull: the quota or the disk has no room.
            ValueError: kind or suffix is not of small letters and digits.
        """
        name = new_generated_name(kind, suffix)
        lasts_s = self._files.settings.generated_hours * 3600
        incoming = self._files.begin(key, len(data), len(data))
        try:
            incoming.write(data)
            self._files.add(incoming, NewFile(key, name, GENERATED, media_type, lasts_s, name))
        finally:
            incoming.discard()
        return name

    def again(self, key: KeyName, ref: str) -> FileId | None:
        """The name of a file of the key that has this content, and lasts longer than an address; None if there is none.

        Blocks: call it in a thread.
        """
        until = self._files.now() + timedelta(minutes=self._files.settings.url_minutes)
        query = select(FileRow.id).where(
            FileRow.key_name == key,
            FileRow.ref == ref,
            FileRow.purpose == GENERATED,
            col(FileRow.expires_at) > until,
        )
        with self._files.reading() as session:
            found = session.exec(query.limit(1)).first()
        return None if found is None else FileId(found)

    def signed_url(self, name: FileId, origin: str = "") -> str:
        """The file's address, good for `files.url_minutes`. `origin` is where the client reached us (`http://host`);
        without one the address is relative.

        Raises:
            SettingsInvalid: the signing key's file was damaged.
        """
        expires = round(self._now() + self._files.settings.url_minutes * 60)
        return f"{origin}{FOLDER}{name}?expires={expires}&signature={self._signature(name, expires)}"

    def require_signature(self, name: str, expires: str, signature: str) -> None:
        """Check an address.

        Raises:
            Forbidden: it is not one that we have made, or its time is over.
        """
        good = expires.isascii() and expires.isdecimal() and len(expires) <= 12
        if not good or not hmac.compare_digest(self._signature(name, int(expires)).encode(), signature.encode()):
            raise Forbidden("the signature of this address is wrong: use it as it was given", code="bad_signature")
        if int(expires) < self._now():
            raise Forbidden("the address of this file is no longer good: ask for the file again", code="url_expired")

    def _signature(self, name: str, expires: int) -> str:
        return self._signer.get_signature(f"{expires}:{name}").decode()

    @cached_property
    def _signer(self) -> Signer:
        return Signer(signing_key(self._key_file), salt=_SALT, key_derivation="hmac")
