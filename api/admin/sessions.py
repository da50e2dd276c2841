"""Logins: a signed cookie that names an admin key, good for some hours and never longer than the key itself."""

import secrets
import threading
from functools import cached_property
from pathlib import Path

from itsdangerous import BadData, TimestampSigner, URLSafeTimedSerializer

from api.auth import Auth
from api.errors import Headers
from infra.clock import Clock, wall
from infra.errors import SettingsInvalid
from infra.files import make_private_folder, write_atomic
from infra.security import same_secret
from infra.tokens import Key
from infra.types import KeyName

COOKIE = "coderai_session"
KEY_FILE = ("secrets", "session.key")
"""What signs logins and addresses of files, and seals compactions: below the install's directory."""
_COOKIES_MOST = 16
"""How many of our name are looked at: each costs a signature, and anybody can send thousands."""
_KEY_BYTES = 32
_SALT = "coderai login"
_MAKING = threading.Lock()
"""Held while the key is made: two first uses at once must not have two keys."""


class Sessions:
    """Makes and checks the cookies. They are stored nowhere: what ends one early is the end of its key."""

    def __init__(self, key_file: Path, auth: Auth, lifetime_s: float, now: Clock = wall) -> None:
        self._key_file = key_file
        self._auth = auth
        self._lifetime_s = lifetime_s
        self._now = now

    def begin(self, key: Key, *, secure: bool) -> str:
        """The `Set-Cookie` header's value for a login with this key; `secure`: the browser came by https.

        Raises:
            SettingsInvalid: the signing key's file was damaged.
        """
        value = self._serializer.dumps({"key": key.name, "fingerprint": self._auth.fingerprint(key.name)})
        return _set_cookie(str(value), round(self._lifetime_s), secure=secure)

    def end(self, *, secure: bool) -> str:
        """The `Set-Cookie` header's value that makes a browser forget its login."""
        return _set_cookie("", 0, secure=secure)

    def find(self, headers: Headers) -> Key | None:
        """The admin key that the request's cookie stands for; None without one that is good.

        A cookie that another site planted beside ours, for a longer path say, must not log our operator out: of several
        with our name the first that is good counts.
        """
        ours = [value for name, value in _cookies(headers) if name == COOKIE]
        for value in ours[:_COOKIES_MOST]:
            key = self._key_of(value)
            if key is not None:
                return key
        return None

    def _key_of(self, value: str) -> Key | None:
        try:
            data = self._serializer.loads(value, max_age=int(self._lifetime_s))
        except BadData:
            return None
        # What we have signed we have made: a dict of two strings.
        current = self._auth.fingerprint(data["key"])
        if current is None or not same_secret(data["fingerprint"], current):
            return None
        return Key(KeyName(data["key"]), "admin")

    @cached_property
    def _serializer(self) -> URLSafeTimedSerializer:
        now = self._now

        class Signer(TimestampSigner):
            """Tells the time by our clock."""

            def get_timestamp(self) -> int:
                return int(now())

        key = signing_key(self._key_file)
        return URLSafeTimedSerializer(key, salt=_SALT, signer=Signer, signer_kwargs={"key_derivation": "hmac"})


def signing_key(path: Path) -> bytes:
    """The install's own 32 random bytes, made at the first use. (One front a home: `infra/home_lock.py`.)

    Raises:
        SettingsInvalid: there is something else in the file.
        DiskFull: it could not be made.
    """
    with _MAKING:
        if not path.exists():
            make_private_folder(path.parent)
            write_atomic(path, secrets.token_bytes(_KEY_BYTES))
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise SettingsInvalid(f"{path} is damaged: delete it, and log in again")
    return key


def _set_cookie(value: str, lifetime_s: int, *, secure: bool) -> str:
    text = f"{COOKIE}={value}; Path=/; Max-Age={lifetime_s}; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text


def _cookies(headers: Headers) -> list[tuple[str, str]]:
    """Every cookie of a request, in order. (The standard library's parser drops all of them for one odd name.)"""
    lines = (value.decode("latin-1") for name, value in headers if name == b"cookie")
    pairs = (part.strip().partition("=") for line in lines for part in line.split(";"))
    return [(name, value) for name, _equals, value in pairs]
