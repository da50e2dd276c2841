"""Keys and secrets: how they are made, what is stored of them, how they are compared."""

import hashlib
import hmac
import secrets

KEY_PREFIX = "sk-coderai-"
_SECRET_BYTES = 32


def new_key() -> str:
    """A new API key: 256 random bits behind `sk-coderai-`, safe in a URL, a header and a shell."""
    return KEY_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def new_internal_token() -> str:
    """A secret for the processes of one install to know each other by: 256 random bits as hex digits."""
    return secrets.token_hex(_SECRET_BYTES)


def hash_key(key: str) -> str:
    """What is stored of a key: its SHA-256 as 64 hex digits.

    A key holds 256 random bits, so a plain hash cannot be reversed by guessing; a slow one would cost every request.
    Any text is accepted, also one that is no valid Unicode.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def same_secret(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ. An empty one equals nothing."""
    if not expected:
        return False
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass"))
