"""`coderai runs`: what was asked of the running server, and what became of it."""

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape

from api.cli.local import call_front, fetch, front_url, standard_output
from api.cli.run_display import Run, progress_line, run_details, runs_table
from infra.errors import CoderAIError, InvalidRequest
from infra.settings import Settings, load_settings

app = typer.Typer(
    help="List, follow, retry and cancel runs. Every request is one; its id is in the answer's X-Coderai-Run.",
    no_args_is_help=True,
)

RunPart = Annotated[str, typer.Argument(help="A run's id, or its first 6 or more characters.", metavar="RUN")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Status = Annotated[
    str | None,
    typer.Option(help="Only these: queued, running, paused, cancelling, completed, failed, cancelled or crashed."),
]
Model = Annotated[str | None, typer.Option(help="Only this model's.")]
KeyName = Annotated[str | None, typer.Option("--key", help="Only this key's (`coderai tokens list`).")]

_ID_CHARS = 36
_ID = re.compile(r"[0-9a-f-]{1,36}")
_LEAST_CHARS = 6
_PAGE = 100
_SEARCHED = 1000
_LOOK_S = 0.5
_OVER = ("completed", "failed", "cancelled", "crashed")
_INTERRUPTED = 130


@app.command("list")
def show_all(
    limit: Annotated[int, typer.Option(min=1, help="How many, the latest first.")] = 20,
    status: Status = None,
    model: Model = None,
    key: KeyName = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the latest first."""
    runs = list(_runs(load_settings(), limit, _warn, status=status, model=model, key=key))
    if as_json:
        typer.echo(json.dumps(runs, indent=2))
    else:
        console = standard_output()
        console.print(runs_table(runs, console.width))


@app.command("show")
def show(
    run: RunPart,
    answer: Annotated[bool, typer.Option("--answer", help="Print the kept answer alone, as it is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one run: its times, steps, placements with their reasons, error and log."""
    settings = load_settings()
    found = _whole_id(settings, run)
    if answer:
        sys.stdout.buffer.write(fetch(settings, "GET", f"/v1/runs/{found}/answer"))
        return
    detail = call_front(settings, "GET", f"/v1/runs/{found}")
    if as_json:
        typer.echo(json.dumps(detail, indent=2))
    else:
        Console().print(run_details(detail, front_url(settings)))


@app.command("watch")
def watch(
    run: Annotated[
        str | None, typer.Argument(help="A run's id, or its first 6 or more characters; default: all.", metavar="[RUN]")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, help="How many runs, when all are watched.")] = 15,
    status: Status = None,
    model: Model = None,
    key: KeyName = None,
    as_json: AsJson = False,
) -> None:
    """Follow a run until it ends, or the list of runs until Ctrl-C.

    With a run the exit code tells its end: 0 if it completed, else 1; 130 if you stopped watching. Where the output is
    no terminal each change is one line (with --json one JSON object).
    """
    settings = load_settings()
    if run is None:
        looks = _looks(lambda: list(_runs(settings, limit, status=status, model=model, key=key)), as_json)
        with contextlib.suppress(KeyboardInterrupt), contextlib.closing(looks):
            for runs in looks:
                runs.show(runs_table(runs.now, Console().width))
        return
    try:
        raise typer.Exit(_followed(settings, _whole_id(settings, run), as_json))
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


@app.command("retry")
def retry(run: RunPart, as_json: AsJson = False) -> None:
    """Execute a run's request once more, as a job; steps that had succeeded are not run again."""
    _told("retry", run, as_json)


@app.command("cancel")
def cancel(run: RunPart, as_json: AsJson = False) -> None:
    """End a run that waits or is running; its engine is free within two seconds."""
    _told("cancel", run, as_json)


def _told(action: str, run: str, as_json: bool) -> None:
    settings = load_settings()
    answer = call_front(settings, "POST", f"/v1/runs/{_whole_id(settings, run)}/{action}", {})
    typer.echo(json.dumps(answer) if as_json else f"run {answer['id']} is {answer['status']}")


def _warn(words: str) -> None:
    Console(stderr=True).print(f"[yellow]{escape(words)}[/yellow]", soft_wrap=True)


def _runs(
    settings: Settings, limit: int, warn: Callable[[str], None] | None = None, **filters: str | None
) -> Iterator[Run]:
    """The latest runs, asked for page by page; `warn` is told why there may be more."""
    query: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
    while limit > 0:
        page = call_front(settings, "GET", f"/v1/runs?{urlencode(query | {'limit': min(limit, _PAGE)})}")
        yield from page["data"]
        if page["incomplete"] and warn is not None:
            warn(page["incomplete"])
        if not page["has_more"]:
            return
        limit -= len(page["data"])
        query["after"] = page["last_id"]


def _whole_id(settings: Settings, part: str) -> str:
    """The id of the one run that begins so.

    Raises:
        InvalidRequest: there is none, or more than one, or the part is too short.
    """
    part = part.lower()
    if not _ID.fullmatch(part):
        raise InvalidRequest(
            f"{part[:50]!r} is no run's id: it is made of 0-9, a-f and '-', and has {_ID_CHARS} of them"
        )
    if len(part) == _ID_CHARS:
        return part
    if len(part) < _LEAST_CHARS:
        raise InvalidRequest(f"{part!r} is too short: give at least {_LEAST_CHARS} characters of the run's id")
    found = [run["id"] for run in _runs(settings, _SEARCHED) if run["id"].startswith(part)]
    if not found:
        raise InvalidRequest(f"none of the latest {_SEARCHED} runs begins with {part!r}: give its whole id")
    if len(found) > 1:
        raise InvalidRequest(f"several runs begin with {part!r}: {', '.join(found)}")
    return str(found[0])


def _followed(settings: Settings, run: str, as_json: bool) -> int:
    """Show the run until it is over; the exit code of its end."""
    url = front_url(settings)
    with contextlib.closing(_looks(lambda: [call_front(settings, "GET", f"/v1/runs/{run}")], as_json)) as looks:
        for (now,), show_it in looks:
            show_it(run_details(now, url))
            if now["status"] in _OVER:
                return 0 if now["status"] == "completed" else 1
    raise AssertionError("there is always another look")


class _Look(NamedTuple):
    """The runs as they are now, and where they can be shown."""

    now: list[Run]
    show: Callable[[RenderableType], None]


def _looks(look: Callable[[], list[Run]], as_json: bool) -> Generator[_Look, None, None]:
    """Look again and again. Where the output is no terminal, what has changed is printed here."""
    console, seen = Console(), dict[str, str]()
    if console.is_terminal and not as_json:
        with Live(console=console, auto_refresh=False) as screen:
            while True:
                yield _Look(_patiently(look), lambda shown: screen.update(shown, refresh=True))
                time.sleep(_LOOK_S)
    while True:
        runs = _patiently(look)
        _say_changes(runs, seen, as_json)
        yield _Look(runs, lambda _shown: None)
        time.sleep(_LOOK_S)


def _patiently(look: Callable[[], list[Run]]) -> list[Run]:
    """Look, and look again while the flow-run server is being restarted."""
    while True:
        try:
            return look()
        except CoderAIError as error:
            if error.code != "flows_unavailable":
                raise
            time.sleep(_LOOK_S)


def _say_changes(runs: list[Run], seen: dict[str, str], as_json: bool) -> None:
    for run in reversed(runs):
        words = f"{run['id']} {run['status']} {run['flow']} {run['model'] or ''}"
        if run.get("progress"):
            words += f" {progress_line(run['progress'])}"
        if seen.get(run["id"]) != words:
            seen[run["id"]] = words
            typer.echo(json.dumps(run) if as_json else words)
