"""`coderai models`: the catalogue, and what of it is in memory."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from api.cli.adding import add_downloaded, is_remote
from api.cli.local import call_front, install, standard_output, table
from api.cli.spreading import ChunkSeconds, Distribute, Hedge, MaxParts, MinItems, Nodes, given
from infra.errors import InvalidRequest
from infra.settings import load_settings
from workers.catalogue import Catalogue
from workers.catalogue_rows import ModelRows
from workers.entries import shown
from workers.extras import INSTALL, missing_libraries
from workers.folders.reading import read_model
from workers.importing import import_models
from workers.packaged.catalogue import packaged_entries
from workers.types import ModelEntry

app = typer.Typer(help="Add, list, load, unload and remove models.", no_args_is_help=True)


@app.command("add")
def add(
    what: Annotated[str, typer.Argument(help="A file, a model's folder, a hub id OWNER/REPO[:QUANT], a URL; or NAME.")],
    name: Annotated[str | None, typer.Option(help="What clients call it; default: the file's name.")] = None,
    service_url: Annotated[str | None, typer.Option(help="A far OpenAI-like service, with or without /v1.")] = None,
    served_model: Annotated[str | None, typer.Option(help="What the far service calls it; default: NAME.")] = None,
    api_key_stdin: Annotated[bool, typer.Option("--api-key-stdin", help="Read the far service's key.")] = False,
    capability: Annotated[list[str] | None, typer.Option(help="What a far model does: chat, embeddings, …")] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name for it; may be given several times.")] = None,
    engine: Annotated[str | None, typer.Option(help="Pin: the pool it must run on (`coderai engines list`).")] = None,
    max_instances: Annotated[int | None, typer.Option(help="Requests decoded at once.")] = None,
    queue_max_waiting: Annotated[int | None, typer.Option(help="Requests that may wait; more answer 503.")] = None,
    context_tokens: Annotated[int | None, typer.Option(help="Context of one request, in tokens.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The file's expected SHA-256, for a download.")] = None,
    distribute: Distribute = None,
    nodes: Nodes = None,
    max_parts: MaxParts = None,
    min_items: MinItems = None,
    chunk_seconds: ChunkSeconds = None,
    hedge: Hedge = None,
) -> None:
    """Add a model: local weights or a folder of them, a download, or a far service."""
    parts = {"enabled": distribute, "nodes": nodes, "max_parts": max_parts, "min_items": min_items}
    spread = given(**parts, chunk_seconds=chunk_seconds, hedge=hedge)
    limits = {"engine": engine, "max_instances": max_instances, "queue_max_waiting": queue_max_waiting}
    fields = given(**limits, context_tokens=context_tokens, aliases=alias, distribute=spread or None)
    with install() as (settings, database):
        rows = ModelRows(settings, database)
        if service_url is not None:
            key = sys.stdin.readline().strip() if api_key_stdin else None
            far = {"service_url": service_url, "served_model": served_model, "api_key": key, "capabilities": capability}
            row = {"name": name or what, **fields, **{field: value for field, value in far.items() if value}}
            entry = rows.add(row, read_model, trusted=True)
        elif is_remote(what):
            entry = add_downloaded(settings, rows, what, name, sha256, fields)
        else:
            entry = rows.add_local(what, read_model, trusted=True, name=name, **fields)
    _tell_added(entry)


def _tell_added(entry: ModelEntry) -> None:
    """What was added, and what is missing to load it."""
    Console().print(f"added {entry.name} ({', '.join(entry.capabilities)})", highlight=False, soft_wrap=True)
    if missing := missing_libraries(entry.format):
        Console(stderr=True, style="yellow").print(
            f"it cannot be loaded yet: {', '.join(missing)} not installed, {INSTALL}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )


@app.command("list")
def show_all() -> None:
    """List every model: declared in the file, added, and packaged."""
    lines = table("name", "aliases", "does", "source", "where")
    with install() as (settings, database):
        catalogue = Catalogue.load(settings, database, packaged_entries(settings.home), read_model)
    for entry in catalogue.entries:
        where = entry.service_url or str(entry.path)
        lines.add_row(entry.name, ", ".join(entry.aliases), ", ".join(entry.capabilities), entry.source, escape(where))
    console = standard_output()
    console.print(lines)
    for problem in catalogue.problems:
        console.print(f"[yellow]{escape(problem)}[/yellow]", soft_wrap=True)


@app.command("show")
def show(name: Annotated[str, typer.Argument(help="A model's name or alias.")]) -> None:
    """Show one model's entry as JSON; a far service's key is not shown."""
    with install() as (settings, database):
        catalogue = Catalogue.load(settings, database, packaged_entries(settings.home), read_model)
    typer.echo(json.dumps(shown(catalogue.get(name)), indent=2))


@app.command("load")
def load(name: Annotated[str, typer.Argument(help="A model's name or alias.")]) -> None:
    """Load a model into the running server and wait until it serves."""
    with Console().status(f"loading {name}"):
        answer = call_front(load_settings(), "POST", "/admin/api/model-load", {"model": name})
    typer.echo(f"{answer['model']} is {answer['state']} on {answer['engine']}")


@app.command("unload")
def unload(name: Annotated[str, typer.Argument(help="A model's name or alias.")]) -> None:
    """Take a model out of the running server's memory; refused while it answers requests."""
    answer = call_front(load_settings(), "POST", "/admin/api/model-unload", {"model": name})
    typer.echo(f"{answer['model']}: {answer['engines']} engine(s) unloaded")


@app.command("remove")
def remove(name: Annotated[str, typer.Argument(help="The name of a model that was added.")]) -> None:
    """Remove a model from the catalogue; its weights stay where they are."""
    with install() as (settings, database):
        ModelRows(settings, database).remove(name)
    typer.echo(f"removed {name}")


@app.command("import")
def import_file(
    path: Annotated[Path, typer.Argument(help="A models.json of the CoderAI that this one replaces.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken.")] = False,
) -> None:
    """Take over a models.json: what maps is added, what does not is named with its reason."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from error
    with install() as (settings, database):
        report = import_models(text, ModelRows(settings, database), read_model, trusted=True, dry_run=dry_run)
    for line in report.lines():
        typer.echo(line)
