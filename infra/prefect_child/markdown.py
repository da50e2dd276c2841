"""The one artifact of a run, in Markdown: its placements and its tokens.

Names of models and engines, and what engines say when they fail, are others' words: nothing of them may become markup.
"""

import re
from collections.abc import Iterator

from infra.prefect_child.wording import passed_over, tokens
from infra.records import Attempt, RunRecord, StepRecord

_LONGEST = 1000
_MARKUP = re.compile(r"([\\`*_{}\[\]<>&|~#!$])")
_LINK = re.compile(r"(?<=\w):(?=//)|(?<=www)\.", re.IGNORECASE)
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_HEAD = (
    "| step | try | pool | engine | seconds | why there | passed over | error |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def text(words: str) -> str:
    """Words that mean themselves in Markdown, within one line and within a table."""
    flat = _BLANK.sub(" ", words[:_LONGEST])
    return _LINK.sub(r"\\\g<0>", _MARKUP.sub(r"\\\1", flat))


def code(name: str) -> str:
    """A name as code, within one line and within a table; a backtick in it becomes an apostrophe."""
    flat = _BLANK.sub(" ", name[:_LONGEST]).replace("`", "'").replace("|", "\\|").strip()
    return f"`{flat}`" if flat else ""


def describe_run(record: RunRecord) -> str:
    """The artifact of a finished run."""
    parts = [f"{code(record.model)}: {_summary(record)}"]
    if counted := tokens(record):
        parts.append(f"{counted[0].upper()}{counted[1:]}.")
    if record.error is not None:
        parts.append(f"**Error**: {text(record.error)}")
    if record.steps:
        parts.append("\n".join([_HEAD, *_table(record)]))
    else:
        parts.append("The steps were left out, because the spool was full.")
    return "\n\n".join(parts)


def _summary(record: RunRecord) -> str:
    seconds = f"{record.status} in {max(record.ended_at - record.started_at, 0.0):.3f} s"
    first = "" if record.first_token_s is None else f", first token after {record.first_token_s:.3f} s"
    return f"{seconds}, waited {record.queue_wait_s:.3f} s for a slot{first}."


def _table(record: RunRecord) -> Iterator[str]:
    for step in record.steps:
        if not step.attempts:
            yield f"| {_step(step)} |  |  |  |  | {step.status} before it was placed |  |  |"
        for number, attempt in enumerate(step.attempts, start=1):
            yield _line(step, number, attempt)


def _line(step: StepRecord, number: int, attempt: Attempt) -> str:
    seconds = max(attempt.ended_at - attempt.started_at, 0.0)
    cells = (
        _step(step),
        str(number),
        code(attempt.pool or ""),
        code(attempt.engine or "the front"),
        f"{seconds:.3f}",
        text(attempt.reason),
        text(passed_over(attempt)),
        text(attempt.error or ""),
    )
    return f"| {' | '.join(cells)} |"


def _step(step: StepRecord) -> str:
    return f"{code(step.id)} {text(step.task)}"
