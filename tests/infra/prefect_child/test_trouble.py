"""Tests of whose fault a database's error is."""

import sqlite3

import pytest
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InvalidRequestError,
    OperationalError,
    ProgrammingError,
    StatementError,
)

from infra.prefect_child.batch import NotReady, RowsRefused, SchemaUnknown
from infra.prefect_child.trouble import Locked, in_our_words


class DataExceptionOfPostgres(Exception):
    """As the driver's wrapper raises it."""

    sqlstate = "22P05"


def _sqlite(words: str) -> OperationalError:
    return OperationalError("INSERT …", {}, sqlite3.OperationalError(words))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_sqlite("database is locked"), Locked),
        (_sqlite("database or disk is full"), NotReady),
        (_sqlite("no such column: data"), SchemaUnknown),
        (_sqlite("table log has no column named message"), SchemaUnknown),
        (ProgrammingError("", {}, Exception("<class 'UndefinedColumnError'>: column")), SchemaUnknown),
        (IntegrityError("", {}, sqlite3.IntegrityError("UNIQUE constraint failed: run.id")), RowsRefused),
        (DBAPIError("", {}, DataExceptionOfPostgres("\\u0000 cannot be converted to text")), RowsRefused),
        (DBAPIError("", {}, Exception("connection was closed in the middle of operation")), NotReady),
        (StatementError("", "", {}, ValueError("Timestamps must have a timezone.")), RowsRefused),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), RowsRefused),
        (OverflowError("Python int too large"), RowsRefused),
        (ConnectionRefusedError(111, "refused"), NotReady),
    ],
)
def test_each_error_has_its_fault(error: Exception, kind: type[Exception]) -> None:
    assert type(in_our_words(error)) is kind


def test_a_mistake_of_ours_stays_what_it_is() -> None:
    error = StatementError("", "", {}, InvalidRequestError("no executemany"))
    assert in_our_words(error) is error


def test_no_value_of_a_row_is_told() -> None:
    error = IntegrityError("INSERT", {"parameters": "secret"}, sqlite3.IntegrityError("Key (name)=(secret) exists"))
    assert "secret" not in str(in_our_words(error))
