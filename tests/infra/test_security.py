"""Keys are long, hashed and compared safely."""

import hashlib
import re

from infra.security import hash_key, new_internal_token, new_key, same_secret


def test_a_key_has_256_random_bits_and_no_character_that_needs_quoting() -> None:
    keys = {new_key() for _ in range(200)}
    assert len(keys) == 200
    assert all(re.fullmatch(r"sk-coderai-[A-Za-z0-9_-]{43}", key) for key in keys)


def test_what_is_stored_is_the_sha256() -> None:
    assert hash_key("sk-coderai-x") == hashlib.sha256(b"sk-coderai-x").hexdigest()
    assert re.fullmatch(r"[0-9a-f]{64}", hash_key("\udcff\x00é"))


def test_secrets_are_equal_or_not() -> None:
    token = new_internal_token()
    assert re.fullmatch(r"[0-9a-f]{64}", token)
    assert same_secret(token, token)
    assert same_secret("é", "é")
    assert not same_secret(token[:-1], token)
    assert not same_secret("", "")
    assert not same_secret("\udcff", token)
