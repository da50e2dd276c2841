"""What is kept of a finished run: one JSON line in the spool, read later by whoever records flow runs."""

from dataclasses import dataclass, field
from typing import Literal

import orjson

from infra.types import EngineId, KeyName, ModelName, PoolId, RunId

RECORD_VERSION = 1
"""Grows with every change that a reader must know of."""

RunStatus = Literal["completed", "failed", "cancelled"]


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
    version: int = RECORD_VERSION

    def line(self, *, detail: bool = True) -> bytes:
        """The record as one line of JSON; without `detail` the steps are left out."""
        if detail:
            return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)
        slim = {name: getattr(self, name) for name in self.__slots__ if name != "steps"}
        return orjson.dumps(slim | {"steps": None}, option=orjson.OPT_APPEND_NEWLINE)
