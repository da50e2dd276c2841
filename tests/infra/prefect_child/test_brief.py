"""A locked database in the log: one line; any other trouble: all of it."""

import logging
import sqlite3
from collections.abc import Iterator

import pytest
from sqlalchemy.exc import OperationalError

from infra.prefect_child.brief import be_brief_about_locks


@pytest.fixture(autouse=True)
def brief() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    be_brief_about_locks()
    yield
    logging.setLogRecordFactory(before)


def logged(error: Exception, caplog: pytest.LogCaptureFixture) -> str:
    """What stands in the log where Prefect says that a service of its own met this error."""
    try:
        raise error
    except type(error):
        logging.getLogger("docket.dependencies").exception("heartbeat of %s failed", "cpu")
    return caplog.text


def of_driver(words: str) -> OperationalError:
    return OperationalError("UPDATE worker", {}, sqlite3.OperationalError(words))


def test_a_lock_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    text = logged(of_driver("database is locked"), caplog)
    assert text.count("\n") == 1
    assert "heartbeat of cpu failed (Prefect's database is busy: database is locked)" in text
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("error", [of_driver("no such table: worker"), ValueError("database is locked")])
def test_other_trouble_keeps_its_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    text = logged(error, caplog)
    assert "heartbeat of cpu failed\nTraceback (most recent call last)" in text


def test_what_is_no_error_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("x").warning("%d of %d", 1, 2)
    assert [record.getMessage() for record in caplog.records] == ["1 of 2"]
