"""What went wrong in Prefect's database, as the drainer needs to hear it: whose fault, and whether to come back."""

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

from infra.prefect_child.batch import NotReady, RowsRefused, SchemaUnknown

_ANOTHER_WRITER = ("database is locked", "database table is locked", "deadlock detected", "could not serialize")
_OTHER_TABLES = ("no such table", "no such column", "has no column named", "undefinedcolumn", "undefinedtable")


class Locked(NotReady):
    """Another writer is at work; a moment later it may be through."""


def in_our_words(error: Exception) -> Exception:
    """The error to raise instead; itself if it is a mistake of ours.

    The message quotes the driver's first line only where that holds no value of a row: rows hold requests.
    """
    if isinstance(error, OverflowError | UnicodeError):
        return RowsRefused(f"a value that no database takes: {type(error).__name__}")
    if not isinstance(error, StatementError):
        return NotReady(f"Prefect's database does not answer: {type(error).__name__}")
    driver = error.orig
    if not isinstance(error, DBAPIError) and not isinstance(driver, ValueError | TypeError | OverflowError):
        return error
    words = (str(driver).splitlines() or [""])[0][:200]
    told = f"{type(driver).__name__} {words}".lower()
    if any(sign in told for sign in _ANOTHER_WRITER):
        return Locked(f"Prefect's database is busy: {words}")
    if any(sign in told for sign in _OTHER_TABLES):
        return SchemaUnknown(f"Prefect's tables are not those of version 3.9: {words}")
    if _is_rows_fault(error):
        return RowsRefused(f"Prefect's database does not take this: {type(driver).__name__}")
    return NotReady(f"Prefect's database takes nothing now: {words}")


def _is_rows_fault(error: StatementError) -> bool:
    """SQLSTATE classes 22 and 23 are PostgreSQL's data exceptions and broken constraints; its driver's wrapper calls
    the former no DataError. What is no error of the driver failed on the way to it, in the conversion of a value."""
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return (
        isinstance(error, IntegrityError | DataError) or state[:2] in ("22", "23") or not isinstance(error, DBAPIError)
    )
