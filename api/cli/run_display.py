"""How `coderai runs` shows runs on a terminal. What comes from models and far services is shown, never obeyed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from api.cli.local import table
from flows.progress import RunProgress, in_words

SHORT_CHARS = 8
"""Characters of an id that are shown in a table: enough to name the run by."""
_WIDE_CHARS = 110
_COLOURS = {"completed": "green", "failed": "red", "crashed": "red", "running": "cyan", "cancelled": "yellow"}
_UNITS = {
    "ocr": "pages read",
    "transcription": "seconds heard",
    "speech": "characters",
    "images": "images",
    "video": "videos",
}
"""What a flow's units are counted in."""
Run = dict[str, Any]


def runs_table(runs: list[Run], width_chars: int) -> Table:
    """Runs, one a line. What names a run is never folded; a narrow terminal does without keys and lanes."""
    names = ["run", "status", "flow", "model", "key", "lane", "began", "seconds", "error"]
    if width_chars < _WIDE_CHARS:
        names = [name for name in names if name not in ("key", "lane")]
    lines = table(*names)
    for column in lines.columns:
        column.no_wrap = column.header in ("run", "status", "began", "seconds")
    for run in runs:
        cells = _cells(run)
        lines.add_row(*(cells[name] for name in names))
    return lines


def _cells(run: Run) -> dict[str, Text | str]:
    return {
        "run": run["id"][:SHORT_CHARS],
        "status": _status(run["status"]),
        "flow": plain(run["flow"]),
        "model": plain(run["model"]),
        "key": plain(run["key"]),
        "lane": run["lane"],
        "began": _short_moment(run["started_at"] or run["created_at"]),
        "seconds": _seconds(run["duration_s"]),
        "error": plain(run["error"]),
    }


def run_details(run: Run, url: str) -> RenderableType:
    """All that is known of one run; `url` is the server's."""
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(run, url):
        facts.add_row(name, value if isinstance(value, Text) else plain(value))
    parts: list[RenderableType] = [facts]
    if run["steps"]:
        parts.append(_steps(run["steps"]))
    if run["report"] and not any(step["attempts"] for step in run["steps"]):
        parts.append(Markdown(plain(run["report"]).plain, hyperlinks=False))
    parts += [plain(f"{_moment(line['at'])}  {line['message']}") for line in run["log"]]
    return Group(*parts)


def _facts(run: Run, url: str) -> Iterator[tuple[str, str | Text]]:
    yield "run", run["id"]
    yield "status", _status(run["status"])
    yield "what", f"{run['flow']} of {run['model'] or '?'} for the key {run['key'] or '?'}, {run['lane']} lane"
    yield "began", _moment(run["started_at"] or run["created_at"])
    if run["ended_at"] is not None:
        yield "ended", f"{_moment(run['ended_at'])}, after {_seconds(run['duration_s'])} s"
    if run["run_count"] > 1:
        yield "executed", f"{run['run_count']} times"
    if run.get("progress"):
        yield "progress", progress_line(run["progress"])
    if run["usage"]:
        yield from _used(run["flow"], run["usage"])
    if run["error"]:
        yield "error", plain(run["error"], "red")
    if run["answer_url"]:
        yield "answer", url + run["answer_url"]
    yield "page", url + run["flow_url"]


def _used(flow: str, usage: Run) -> Iterator[tuple[str, str]]:
    if usage["total_tokens"]:
        counts = f"{usage['prompt_tokens']} prompt ({usage['cached_tokens']} cached)"
        yield "tokens", f"{counts}, {usage['completion_tokens']} completion"
    if usage["units"]:
        yield _UNITS.get(flow, "units"), f"{usage['units']:g}"


def progress_line(progress: Run) -> str:
    """How far a run is, in one line."""
    return in_words(RunProgress.model_validate(progress))


def _steps(steps: list[Run]) -> Table:
    lines = table("step", "status", "pool", "engine", "why there", "seconds", "error")
    for step in steps:
        for attempt in step["attempts"] or [step]:
            ended, began = attempt["ended_at"], attempt["started_at"]
            lines.add_row(
                plain(step["step"]),
                _status(step["status"]),
                plain(attempt.get("pool")),
                plain(attempt.get("engine")),
                plain(attempt.get("reason")),
                _seconds(ended - began if ended and began else None),
                plain(attempt["error"]),
            )
    return lines


def plain(words: str | None, style: str = "") -> Text:
    """Words as they are, folded where the terminal is narrow, without what would steer it."""
    printable = "".join(char if char.isprintable() or char == "\n" else " " for char in words or "")
    return Text(printable, style=style, overflow="fold")


def _status(status: str) -> Text:
    return Text(status, style=_COLOURS.get(status, ""))


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"


def _moment(seconds: float) -> str:
    """In this machine's own time."""
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _short_moment(seconds: float) -> str:
    """The same without what goes without saying: today's date, or the seconds of another day."""
    moment, now = datetime.fromtimestamp(seconds, UTC).astimezone(), datetime.now(UTC).astimezone()
    if moment.date() == now.date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%m-%d %H:%M}" if moment.year == now.year else f"{moment:%Y-%m-%d}"
