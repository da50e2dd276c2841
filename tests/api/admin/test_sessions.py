"""Cookies: what is in them, what is good, and what ends them."""

import contextlib
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from itsdangerous import URLSafeTimedSerializer

from api.admin import sessions
from api.admin.sessions import COOKIE, Sessions, signing_key
from api.auth import Auth
from infra.database import Database, open_database
from infra.errors import SettingsInvalid
from infra.files import write_atomic
from infra.migrate import migrate
from infra.tokens import Key, TokenTable, create_key, revoke_key
from infra.types import KeyName

ADMIN = Key(KeyName("boss"), "admin")


class Keys:
    """A database with an admin key, and who asks it."""

    def __init__(self, folder: Path) -> None:
        self.database: Database = open_database(f"sqlite:///{folder}/coderai.db")
        migrate(self.database)
        create_key(self.database, "boss", "admin")
        create_key(self.database, "anna", "user")
        self.tokens = TokenTable(self.database)
        self.tokens.refresh()
        self.auth = Auth(self.tokens, "internal")
        self.file = folder / "secrets" / "session.key"
        self.now_s = 1000.0

    def sessions(self, lifetime_s: float = 3600) -> Sessions:
        return Sessions(self.file, self.auth, lifetime_s, lambda: self.now_s)


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    made = Keys(tmp_path)
    yield made
    made.database.close()


def value_of(set_cookie: str) -> str:
    assert set_cookie.startswith(f"{COOKIE}=")
    return set_cookie.partition(";")[0].partition("=")[2]


def sent(*cookies: str) -> list[tuple[bytes, bytes]]:
    return [(b"cookie", cookie.encode()) for cookie in cookies]


def test_a_login_is_good_for_its_hours(keys: Keys) -> None:
    sessions = keys.sessions(lifetime_s=3600)
    value = value_of(sessions.begin(ADMIN, secure=False))
    keys.now_s += 3600
    assert sessions.find(sent(f"a=b; {COOKIE}={value}")) == ADMIN
    keys.now_s += 1
    assert sessions.find(sent(f"{COOKIE}={value}")) is None


def test_shorter_hours_hold_for_old_logins_too(keys: Keys) -> None:
    value = value_of(keys.sessions(lifetime_s=3600).begin(ADMIN, secure=False))
    keys.now_s += 100
    assert keys.sessions(lifetime_s=60).find(sent(f"{COOKIE}={value}")) is None


def test_the_cookie_is_for_our_own_pages_alone(keys: Keys) -> None:
    sessions = keys.sessions(lifetime_s=7200)
    plain, secure = sessions.begin(ADMIN, secure=False), sessions.begin(ADMIN, secure=True)
    assert plain.endswith("; Path=/; Max-Age=7200; HttpOnly; SameSite=Strict")
    assert secure.endswith("; Secure")
    assert sessions.end(secure=False) == f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


def test_a_tampered_cookie_is_nothing(keys: Keys) -> None:
    sessions = keys.sessions()
    value = value_of(sessions.begin(ADMIN, secure=False))
    payload, stamp, signature = value.split(".")
    forged = URLSafeTimedSerializer(b"0" * 32, salt="coderai login").dumps({"key": "boss", "fingerprint": "x"})
    for bad in (
        "",
        "x",
        "..",
        value[:-2],
        f"{payload}x.{stamp}.{signature}",
        f"{payload}.{stamp}A.{signature}",
        f"{payload}.{stamp}",
        str(forged),
        "é" * 40,
    ):
        assert sessions.find(sent(f"{COOKIE}={bad}")) is None, bad


def test_a_planted_cookie_does_not_hide_the_good_one(keys: Keys) -> None:
    sessions = keys.sessions()
    value = value_of(sessions.begin(ADMIN, secure=False))
    assert sessions.find(sent(f'{COOKIE}=bad; odd name="; {COOKIE}={value}')) == ADMIN
    assert sessions.find(sent(f"{COOKIE}=bad", f"{COOKIE}={value}")) == ADMIN
    assert sessions.find(sent(f"x{COOKIE}={value}")) is None
    assert sessions.find([(b"x-cookie", f"{COOKIE}={value}".encode())]) is None


def test_a_flood_of_cookies_costs_no_more_than_a_few(keys: Keys) -> None:
    """Each costs a signature, and anybody can send thousands in one request."""
    sessions = keys.sessions()
    value = value_of(sessions.begin(ADMIN, secure=False))
    assert sessions.find(sent(*[f"{COOKIE}=a.b.c"] * 15, f"{COOKIE}={value}")) == ADMIN
    assert sessions.find(sent("; ".join([f"{COOKIE}=a.b.c"] * 16 + [f"{COOKIE}={value}"]))) is None


def test_a_revoked_key_ends_its_logins(keys: Keys) -> None:
    sessions = keys.sessions()
    value = value_of(sessions.begin(ADMIN, secure=False))
    revoke_key(keys.database, "boss")
    keys.tokens.refresh()
    assert sessions.find(sent(f"{COOKIE}={value}")) is None


def test_a_key_of_the_same_name_in_another_database_is_another(keys: Keys, tmp_path: Path) -> None:
    value = value_of(keys.sessions().begin(ADMIN, secure=False))
    (tmp_path / "other").mkdir()
    other = Keys(tmp_path / "other")
    other.file = keys.file
    assert other.sessions().find(sent(f"{COOKIE}={value}")) is None
    other.database.close()


def test_a_cookie_for_a_key_that_is_no_admins_is_nothing(keys: Keys) -> None:
    sessions = keys.sessions()
    value = value_of(sessions.begin(Key(KeyName("anna"), "user"), secure=False))
    assert sessions.find(sent(f"{COOKIE}={value}")) is None


def test_the_signing_key_is_made_once_for_the_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secrets" / "session.key"
    key = signing_key(file)
    assert len(key) == 32
    assert signing_key(file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_bytes(b"short")
    with pytest.raises(SettingsInvalid, match="delete it"):
        signing_key(file)


def test_two_first_uses_at_once_have_one_signing_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def slow(path: Path, data: bytes) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        write_atomic(path, data)

    monkeypatch.setattr(sessions, "write_atomic", slow)
    with ThreadPoolExecutor(2) as threads:
        keys = set(threads.map(signing_key, [tmp_path / "session.key"] * 2))
    assert keys == {(tmp_path / "session.key").read_bytes()}


def test_a_login_outlives_a_restart(keys: Keys) -> None:
    value = value_of(keys.sessions().begin(ADMIN, secure=False))
    assert keys.sessions().find(sent(f"{COOKIE}={value}")) == ADMIN
