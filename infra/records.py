"""What is kept of a run: one JSON line in the spool, read by the Prefect child, which makes a flow run of it."""

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from infra.errors import InvalidRequest
from infra.types import EngineId, Json, KeyName, ModelName, PoolId, RunId

RECORD_VERSION = 2
"""Grows with every change that a reader must know of."""

RunStatus = Literal["running", "completed", "failed", "cancelled"]
"""`running`: the line of a run that lasts; the line of its end follows."""


@dataclass(slots=True)
class Payload:
    """What a run can be executed again with: its request, or the reference of the blob that holds it (`Blobs`), and
    the results of the steps that had finished."""

    request: Any = None
    """The request's JSON; an `orjson.Fragment` while it is being written, bytes until it has gone to a blob."""
    blob: str | None = None
    steps: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class Boot:
    """The first line of a front's life: no run of an earlier one is running any more."""

    boot: str
    started_at: float
    kind: Literal["boot"] = "boot"
    version: int = RECORD_VERSION

    def line(self) -> bytes:
        """The record as one line of JSON."""
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)


@dataclass(slots=True)
class Attempt:
    """One try of a step: where, why there, how it went. Times are seconds since the epoch."""

    pool: PoolId | None
    engine: EngineId | None
    incarnation: int
    reason: str
    passed_over: list[tuple[str, str]]
    started_at: float
    ended_at: float = 0.0
    error: str | None = None


@dataclass(slots=True)
class StepRecord:
    """One step of a run; `parents` are the ids of the steps whose results it read."""

    id: str
    task: str
    parents: tuple[str, ...]
    status: Literal["pending", "completed", "failed", "cancelled"] = "pending"
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(slots=True)
class RunRecord:
    """One execution of a plan. Token counts are None where the engine named none."""

    id: RunId
    flow: str
    model: ModelName
    key: KeyName
    started_at: float
    steps: list[StepRecord]
    ended_at: float = 0.0
    status: RunStatus = "completed"
    error: str | None = None
    queue_wait_s: float = 0.0
    first_token_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    units: float = 0.0
    """What was used besides tokens: pages read, seconds heard, characters spoken, images and videos made."""
    boot: str = ""
    """The life of the front that ran it (`Boot`)."""
    payload: Payload | None = None
    kind: Literal["run"] = "run"
    version: int = RECORD_VERSION

    def line(self, *, detail: bool = True) -> bytes:
        """The record as one line of JSON; without `detail` steps and payload are left out."""
        if detail:
            return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)
        slim = {name: getattr(self, name) for name in self.__slots__ if name not in ("steps", "payload")}
        return orjson.dumps(slim | {"steps": []}, option=orjson.OPT_APPEND_NEWLINE)


_LINE: TypeAdapter[Boot | RunRecord] = TypeAdapter(Boot | RunRecord)


def read_line(line: bytes) -> Boot | RunRecord:
    """A line of the spool.

    Raises:
        InvalidRequest: it is torn, none of ours, or of another version.
    """
    try:
        record = _LINE.validate_json(line)
    except ValidationError as error:
        raise InvalidRequest(f"not a record: {error.errors()[0]['msg']}") from error
    if record.version != RECORD_VERSION:
        raise InvalidRequest(f"a record of version {record.version}; this program reads version {RECORD_VERSION}")
    return record
