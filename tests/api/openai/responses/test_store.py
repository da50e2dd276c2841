"""Stored responses, in a real database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, update

from api.openai.responses import store
from api.openai.responses.store import Whose
from infra.answer_pruning import prune
from infra.database import Database, open_database
from infra.errors import InvalidRequest, NotFound
from infra.migrate import migrate
from infra.response_rows import BackgroundResponses
from infra.tables import ResponseRow
from infra.tokens import Key
from infra.types import KeyName, ResponseId, RunId

ANN, BOB = Whose(KeyName("ann")), Whose(KeyName("bob"))
ADMIN = Whose.of(Key(KeyName("boss"), "admin"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path / 'coderai.db'}")
    migrate(opened)
    yield opened
    opened.close()


def kept(database: Database, name: str, previous: str | None = None, text: str = "") -> None:
    output: list[Any] = [{"type": "message", "id": f"out {name}", "text": text}]
    response: Any = {"id": name, "previous_response_id": previous, "output": output}
    store.keep(database, ANN.key, response, [{"type": "message", "id": f"in {name}"}])


def ids(database: Database, name: str) -> list[Any]:
    return [item["id"] for turn in store.conversation(database, ANN, ResponseId(name)) for item in turn.items]


def test_what_is_kept_is_found_by_its_key_and_by_an_admin(database: Database) -> None:
    kept(database, "a")
    for whose in (ANN, ADMIN):
        assert store.get(database, whose, ResponseId("a")).input == [{"type": "message", "id": "in a"}]
    for whose, name in ((BOB, "a"), (ANN, "b")):
        with pytest.raises(NotFound):
            store.get(database, whose, ResponseId(name))
        with pytest.raises(NotFound):
            store.remove(database, whose, ResponseId(name))
        with pytest.raises(NotFound):
            store.conversation(database, whose, ResponseId(name))


def test_a_conversation_is_told_from_its_beginning(database: Database) -> None:
    kept(database, "a")
    kept(database, "b", "a")
    kept(database, "c", "b")
    kept(database, "other branch", "a")
    assert ids(database, "c") == ["in a", "out a", "in b", "out b", "in c", "out c"]
    assert ids(database, "other branch")[-1] == "out other branch"
    for whose in (ANN, ADMIN):
        assert {turn.key for turn in store.conversation(database, whose, ResponseId("c"))} == {ANN.key}


def test_a_conversation_with_a_hole_names_it(database: Database) -> None:
    kept(database, "a")
    kept(database, "b", "a")
    store.remove(database, ANN, ResponseId("a"))
    with pytest.raises(NotFound, match="'a', which it goes on from, was deleted"):
        store.conversation(database, ANN, ResponseId("b"))


def test_a_conversation_has_an_end(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_CHAIN", 2)
    kept(database, "a")
    kept(database, "b", "a")
    kept(database, "c", "b")
    assert ids(database, "b")
    with pytest.raises(InvalidRequest, match="begin a new one"):
        store.conversation(database, ANN, ResponseId("c"))


def test_a_conversation_that_goes_on_keeps_its_beginning(database: Database) -> None:
    kept(database, "a")
    kept(database, "b", "a")
    for name in ("a", "b"):
        with database.write() as session:
            used_at = datetime.now(UTC) - timedelta(days=31)
            session.exec(update(ResponseRow).where(col(ResponseRow.id) == name).values(used_at=used_at))
    kept(database, "c", "b")
    assert prune(database, 30, 2**30) == 0
    assert len(ids(database, "c")) == 6


def queued(database: Database, name: str) -> BackgroundResponses:
    response: Any = {"id": name, "background": True, "status": "queued", "output": []}
    store.keep(database, ANN.key, response, [{"type": "message", "id": f"in {name}"}])
    return BackgroundResponses(database)


def test_one_in_the_background_names_its_run(database: Database) -> None:
    rows = queued(database, "a")
    assert "run" not in store.get(database, ANN, ResponseId("a")).shown
    rows.queued(ResponseId("a"), RunId("r"))
    stored = store.get(database, ANN, ResponseId("a"))
    assert (stored.status, stored.shown["run"]) == ("queued", "r")
    kept(database, "b")
    assert store.get(database, ANN, ResponseId("b")).status is None


def test_its_status_alone_is_its_key_s_too(database: Database) -> None:
    kept(database, "a")
    store.keep(database, ANN.key, {"id": "b", "status": "queued", "background": True}, [])
    for whose in (ANN, ADMIN):
        assert [store.status_of(database, whose, ResponseId(name)) for name in "ab"] == [None, "queued"]
    for whose, name in ((BOB, "b"), (ANN, "c")):
        with pytest.raises(NotFound):
            store.status_of(database, whose, ResponseId(name))


def test_what_has_no_answer_is_not_gone_on_from(database: Database) -> None:
    rows = queued(database, "a")
    for status, words in (("queued", "wait for its end"), ("cancelled", "has an answer")):
        if status == "cancelled":
            rows.end(ResponseId("a"), "cancelled")
        with pytest.raises(InvalidRequest, match=f"is {status}: .*{words}"):
            store.conversation(database, ANN, ResponseId("a"))
    queued(database, "b").answer(ResponseId("b"), {"status": "incomplete", "output": [{"id": "out b"}]})
    assert ids(database, "b") == ["in b", "out b"]
