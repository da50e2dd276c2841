"""What the drainer hands to the writer: lines of the spool in their order, and how the writer answers."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from infra.errors import CoderAIError, InvalidRequest
from infra.records import Boot, RunRecord
from infra.types import Json


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run and the value of its flow run's one parameter: the row's `parameters` are `{"request": parameter}`.

    `parameter` is the request itself, `{"$blob": "sha256:…"}` or `{"$gone": "why"}` (`infra.requests`); what was to be
    kept has been taken out of `record.payload`, which is None. A run that lasts comes twice, as `running` and with its
    end; the parameter of the later line replaces the earlier one.
    """

    record: RunRecord
    parameter: dict[str, Json]


Batch = Sequence[Boot | Recorded]
"""In the order of the spool: a `Boot` concerns the runs before it, in this batch and in the database."""

Record = Callable[[Batch], Awaitable[None]]
"""Writes the whole batch in one transaction or nothing of it; the same batch twice changes nothing.

Raises:
    RowsRefused: the content of at least one line cannot be stored, now or ever.
    NotReady: nothing can be stored now (database locked, full or away, still starting); come back later.
    SchemaUnknown: the same for as long as this version of Prefect is installed.
"""


class RowsRefused(InvalidRequest):
    """The database will never take this batch, for something in it; half of it may be good."""


class NotReady(CoderAIError):
    """The database takes nothing now, whatever the batch holds; the message says why."""

    code = "not_ready"


class SchemaUnknown(NotReady):
    """Prefect's tables are not those that we write; another version of it is installed."""

    code = "schema_unknown"
