"""The log lines of a run, in words: where each step went and why, what was passed over, what failed, what it cost."""

import logging
from collections.abc import Iterator

from infra.records import Attempt, RunRecord, StepRecord

Line = tuple[float, int, str]
"""When (seconds since the epoch), the level (`logging.INFO` …), the sentence."""
LONGEST = 4000
"""Characters of one line; an error may be a far service's, and long."""


def log_lines(record: RunRecord) -> Iterator[Line]:
    """The lines of a record. Those of a `running` record come again, word for word, with its end."""
    alone = len(record.steps) == 1
    for step in record.steps:
        for number, attempt in enumerate(step.attempts, start=1):
            yield attempt.started_at, logging.INFO, _cut(_placed(step, attempt, number, alone))
            if attempt.error is not None:
                yield attempt.ended_at, logging.WARNING, _cut(_failed(step, attempt, number, alone))
    if record.status != "running":
        yield _last(record)


def tokens(record: RunRecord) -> str:
    """The token counts in words; empty where the engine named none."""
    if record.prompt_tokens is None and record.completion_tokens is None:
        return ""
    cached = f" ({record.cached_tokens} cached)" if record.cached_tokens else ""
    return f"{record.prompt_tokens or 0} prompt tokens{cached}, {record.completion_tokens or 0} completion tokens"


def passed_over(attempt: Attempt) -> str:
    """The candidates that were not taken, each with its reason; empty if there were none."""
    return "; ".join(f"{candidate}: {reason}" for candidate, reason in attempt.passed_over)


def _placed(step: StepRecord, attempt: Attempt, number: int, alone: bool) -> str:
    what = _name(step, number, alone)
    where = f"on {attempt.engine} (pool {attempt.pool})" if attempt.engine else "in the front"
    others = passed_over(attempt)
    return f"{what} {where}: {attempt.reason}" + (f"; passed over: {others}" if others else "")


def _failed(step: StepRecord, attempt: Attempt, number: int, alone: bool) -> str:
    seconds = max(attempt.ended_at - attempt.started_at, 0.0)
    where = attempt.engine or "the front"
    return f"{_name(step, number, alone)} ended on {where} after {seconds:.3f} s: {attempt.error}"


def _name(step: StepRecord, number: int, alone: bool) -> str:
    what = step.task if alone else f"step {step.id} ({step.task})"
    return what if number == 1 else f"{what}, try {number}"


def _last(record: RunRecord) -> Line:
    parts = [f"{record.status} after {max(record.ended_at - record.started_at, 0.0):.3f} s"]
    if record.queue_wait_s >= 0.001:
        parts.append(f"{record.queue_wait_s:.3f} s of it waiting for a slot")
    if record.first_token_s is not None:
        parts.append(f"first token after {record.first_token_s:.3f} s")
    if counted := tokens(record):
        parts.append(counted)
    sentence = ", ".join(parts)
    if record.error is not None:
        sentence = f"{sentence}: {record.error}"
    level = logging.ERROR if record.status == "failed" else logging.INFO
    return record.ended_at, level, _cut(sentence)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
