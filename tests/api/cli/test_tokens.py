"""`coderai tokens`: a key is shown once and alone, listed without its secret, ended for good."""

import stat
from pathlib import Path

import pytest

from infra.database import open_database
from infra.errors import Conflict, InvalidRequest, NotFound
from infra.settings import load_settings
from infra.tokens import TokenTable
from tests.api.cli.conftest import Run


def test_a_key_is_printed_alone_and_opens(run: Run, home: Path) -> None:
    out = run("tokens", "create", "ann", "--scope", "admin")
    key = out.removesuffix("\n")
    assert "\n" not in key
    assert key.startswith("sk-coderai-")
    database = open_database(load_settings().sqlalchemy_url)
    table = TokenTable(database)
    table.refresh()
    found = table.find(key)
    database.close()
    assert found is not None
    assert (found.name, found.scope) == ("ann", "admin")
    assert key.encode() not in (home / "coderai.db").read_bytes()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "coderai.db").stat().st_mode) == 0o600


def test_the_list_has_names_and_no_keys(run: Run) -> None:
    key = run("tokens", "create", "ann").strip()
    run("tokens", "create", "box", "--scope", "node")
    run("tokens", "revoke", "ann")
    out = run("tokens", "list")
    assert key not in out
    (ann,) = [line for line in out.splitlines() if "ann" in line]
    (box,) = [line for line in out.splitlines() if "box" in line]
    assert "user" in ann
    assert "node" in box
    assert ann.count("20") > box.count("20")  # the moment of its end


def test_what_cannot_be(run: Run) -> None:
    run("tokens", "create", "ann")
    with pytest.raises(Conflict, match="choose another name"):
        run("tokens", "create", "ann")
    with pytest.raises(InvalidRequest, match="admin, user, node"):
        run("tokens", "create", "bob", "--scope", "root")
    with pytest.raises(InvalidRequest, match="letters"):
        run("tokens", "create", "a b")
    with pytest.raises(NotFound, match="coderai tokens list"):
        run("tokens", "revoke", "bob")
    assert run("tokens", "revoke", "ann") == "revoked ann\n"
    with pytest.raises(Conflict, match="already"):
        run("tokens", "revoke", "ann")
