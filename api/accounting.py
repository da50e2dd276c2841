"""What each request leaves behind: metrics, one log line, and usage that reaches the database in batches."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.database import Database
from infra.errors import CoderAIError
from infra.log import AccessLog
from infra.metrics import Metrics
from infra.records import RunRecord
from infra.usage import Usage, add_usage

log = logging.getLogger("api.accounting")

FLUSH_S = 5.0
_CLIENT_GONE = 499
"""nginx's status for a request whose client left before its answer."""
_Key = tuple[str, str, str]


@dataclass(slots=True)
class Account:
    """One request as it is accounted for."""

    run: str
    kind: str
    started_s: float
    key: str = "anonymous"
    model: str = "unknown"
    engine: str = ""
    status: int = 0
    record: RunRecord | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JobStep:
    """One try of a job's step on an engine as it is accounted for: its wait for the slot, and its time there."""

    key: str
    model: str
    kind: str
    waited_s: float
    seconds: float
    again: bool
    """It had been tried elsewhere before."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    units: float = 0.0


class Accounting:
    """Counts finished requests, and the steps of jobs."""

    def __init__(self, metrics: Metrics, access: AccessLog, database: Database) -> None:
        self._metrics = metrics
        self._access = access
        self._database = database
        self._usage: dict[_Key, list[float]] = {}
        self.active = 0
        """Requests being answered."""

    def open(self) -> None:
        """A request has begun."""
        self.active += 1

    def close(self, account: Account, now_s: float) -> None:
        """Count one finished request."""
        self.active -= 1
        seconds = now_s - account.started_s
        labels = (account.key, account.model, account.kind, str(account.status or _CLIENT_GONE), account.engine)
        self._metrics.requests.observe(labels, seconds)
        record = account.record
        if record is not None:
            self._count(account, record, seconds)
        self._access.write(account, seconds)

    def count_job(self, key: str, model: str, kind: str) -> None:
        """A job begins, or begins once more: one request; its steps add what they used."""
        self._held((key, model, kind))[0] += 1

    def count_step(self, step: JobStep) -> None:
        """A job's step has ended. Jobs are no part of the histogram of requests: nobody waits for them."""
        self._metrics.queue_wait.observe((step.model,), step.waited_s)
        if step.again:
            self._metrics.retries.add((step.model,), 1)
        self._count_tokens((step.key, step.model), step.prompt_tokens, step.completion_tokens)
        held = self._held((step.key, step.model, step.kind))
        held[2] += step.prompt_tokens
        held[3] += step.completion_tokens
        held[4] += step.seconds
        self._count_units((step.key, step.model, step.kind), step.units)

    async def keep_flushing(self) -> None:
        """Write usage to the database every few seconds, for ever."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what has gathered; what the database does not take is kept for the next time."""
        batch, self._usage = self._usage, {}
        if not batch:
            return
        today = datetime.now(UTC).date()
        rows = [
            Usage(today, *key, int(held[0]), int(held[1]), int(held[2]), int(held[3]), *held[4:])
            for key, held in batch.items()
        ]
        try:
            await asyncio.to_thread(add_usage, self._database, rows)
        except CoderAIError as error:
            log.warning("usage is kept for later: %s", error.message)
            for key, held in batch.items():
                newer = self._usage.get(key, [0, 0, 0, 0, 0.0, 0.0])
                self._usage[key] = [old + new for old, new in zip(held, newer, strict=True)]

    def _count(self, account: Account, record: RunRecord, seconds: float) -> None:
        metrics, model = self._metrics, (account.model,)
        metrics.queue_wait.observe(model, record.queue_wait_s)
        if record.first_token_s is not None:
            metrics.first_token.observe(model, record.first_token_s)
        retries = sum(len(step.attempts) - 1 for step in record.steps if len(step.attempts) > 1)
        if retries:
            metrics.retries.add(model, retries)
        prompt_tokens, completion_tokens = record.prompt_tokens or 0, record.completion_tokens or 0
        self._count_tokens((account.key, account.model), prompt_tokens, completion_tokens)
        held = self._held((account.key, account.model, account.kind))
        held[0] += 1
        held[1] += account.status >= 400 or account.error is not None
        held[2] += prompt_tokens
        held[3] += completion_tokens
        held[4] += seconds
        self._count_units((account.key, account.model, account.kind), record.units)

    def _count_tokens(self, who: tuple[str, str], prompt_tokens: int, completion_tokens: int) -> None:
        if prompt_tokens or completion_tokens:
            self._metrics.tokens.add((*who, "prompt"), prompt_tokens)
            self._metrics.tokens.add((*who, "completion"), completion_tokens)

    def _count_units(self, key: _Key, units: float) -> None:
        if units:
            self._metrics.units.add(key, units)
            self._held(key)[5] += units

    def _held(self, key: _Key) -> list[float]:
        """What has gathered for this key, model and kind."""
        held = self._usage.get(key)
        if held is None:
            held = self._usage[key] = [0, 0, 0, 0, 0.0, 0.0]
        return held
