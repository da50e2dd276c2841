"""Who gets in to an operator's pages, decided by headers alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.admin.guard import Guard, require_no_foreign_page
from api.admin.sessions import Sessions
from api.auth import Auth
from infra.database import open_database
from infra.errors import Forbidden, NotAuthenticated
from infra.migrate import migrate
from infra.tokens import SCOPES, Key, TokenTable, create_key
from infra.types import KeyName

Headers = dict[str, str]
HOST = "box.example:8776"


class Door:
    """A guard, a key of each scope, and a cookie."""

    def __init__(self, folder: Path) -> None:
        self.database = open_database(f"sqlite:///{folder}/coderai.db")
        migrate(self.database)
        self.keys: dict[str, str] = {scope: create_key(self.database, scope, scope) for scope in SCOPES}
        tokens = TokenTable(self.database)
        tokens.refresh()
        auth = Auth(tokens, "internal")
        sessions = Sessions(folder / "session.key", auth, 3600)
        self.cookie = sessions.begin(Key(KeyName("admin"), "admin"), secure=False).partition(";")[0]
        self.guard = Guard(auth, sessions)

    def admits(self, changes: bool, **headers: str) -> str:
        given = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [(name.encode(), value.encode()) for name, value in given.items()]
        return self.guard.admin(lines, changes=changes).name


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    made = Door(tmp_path_factory.mktemp("guard"))
    yield made
    made.database.close()


@pytest.mark.parametrize("changes", [False, True])
def test_an_admins_key_opens_and_others_do_not(door: Door, changes: bool) -> None:
    assert door.admits(changes, authorization=f"Bearer {door.keys['admin']}") == "admin"
    assert door.admits(changes, authorization=f"bearer {door.keys['admin']}") == "admin"
    for scope in ("user", "node"):
        with pytest.raises(Forbidden, match="needs a key of scope admin"):
            door.admits(changes, authorization=f"Bearer {door.keys[scope]}")
    for nothing in ("Bearer sk-wrong", "Bearer ", "Basic YTpi", ""):
        with pytest.raises(NotAuthenticated):
            door.admits(changes, authorization=nothing)
    with pytest.raises(NotAuthenticated, match="log in at /login"):
        door.admits(changes)


def test_a_bad_key_is_not_made_good_by_a_cookie(door: Door) -> None:
    with pytest.raises(Forbidden):
        door.admits(False, authorization=f"Bearer {door.keys['user']}", cookie=door.cookie)
    assert door.admits(False, authorization="Basic YTpi", cookie=door.cookie) == "admin"


@pytest.mark.parametrize(
    "proof",
    [
        {"origin": f"http://{HOST}"},
        {"origin": f"https://{HOST.upper()}"},
        {"origin": f"http://{HOST}", "sec_fetch_site": "same-site"},
        {"sec_fetch_site": "same-origin"},
        {"referer": f"http://{HOST}/flows/runs?x=1"},
    ],
)
def test_a_login_changes_things_from_our_own_pages(door: Door, proof: Headers) -> None:
    assert door.admits(True, cookie=door.cookie, **proof) == "admin"
    assert door.admits(False, cookie=door.cookie, **proof) == "admin"


FOREIGN = [
    "http://evil.example",
    "http://box.example",
    "http://box.example:3000",
    f"http://{HOST}.evil.example",
    f"http://evil@{HOST}",
    f"ftp://{HOST}",
    "null",
    "",
    "http://[",
]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("changes", [False, True])
def test_another_sites_page_does_nothing(door: Door, origin: str, changes: bool) -> None:
    with pytest.raises(Forbidden, match="own address") as caught:
        door.admits(changes, cookie=door.cookie, origin=origin)
    assert caught.value.code == "foreign_origin"
    with pytest.raises(Forbidden):
        door.admits(changes, authorization=f"Bearer {door.keys['admin']}", origin=origin)


@pytest.mark.parametrize(
    "proof",
    [
        {},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "referer": f"http://{HOST}/"},
        {"sec_fetch_site": "none"},
        {"referer": "http://evil.example/"},
        {"referer": f"http://evil.example/http://{HOST}/"},
    ],
)
def test_a_login_without_proof_only_reads(door: Door, proof: Headers) -> None:
    assert door.admits(False, cookie=door.cookie, **proof) == "admin"
    with pytest.raises(Forbidden, match="nothing shows"):
        door.admits(True, cookie=door.cookie, **proof)


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("https://box.example", "box.example:443", True),  # as nginx's `$host:$server_port` has it
        ("http://box.example", "box.example:80", True),
        ("http://[::1]", "[::1]:80", True),
        ("https://box.example", "box.example:80", False),
        ("http://box.example", "box.example:443", False),
        ("http://box.example:443", "box.example", False),
    ],
)
def test_a_port_that_goes_without_saying_may_be_said(origin: str, host: str, own: bool) -> None:
    named = {b"origin": origin.encode(), b"host": host.encode()}
    if own:
        require_no_foreign_page(named)
        return
    with pytest.raises(Forbidden):
        require_no_foreign_page(named)


def test_without_a_host_nothing_is_our_own() -> None:
    require_no_foreign_page({})
    with pytest.raises(Forbidden):
        require_no_foreign_page({b"origin": b"http://"})
