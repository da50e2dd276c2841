"""One line in the log instead of a traceback, where Prefect found its database locked.

Writers of this process take turns, so that this is somebody else's doing: a backup, or a person with a tool.
"""

import logging
from typing import Any

from sqlalchemy.exc import DBAPIError

from infra.prefect_child.trouble import Locked, in_our_words


def be_brief_about_locks() -> None:
    """From now on, for every logger of this process."""
    make = logging.getLogRecordFactory()

    def make_brief(*args: Any, **named: Any) -> logging.LogRecord:
        record = make(*args, **named)
        error = record.exc_info[1] if record.exc_info else None
        told = in_our_words(error) if isinstance(error, DBAPIError) else None
        if isinstance(told, Locked):
            record.msg, record.args, record.exc_info = f"{record.getMessage()} ({told.message})", (), None
        return record

    logging.setLogRecordFactory(make_brief)
