"""`coderai loras`: adapters that every key may use by their name."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from api.auth import INTERNAL
from api.cli.local import install, standard_output, table
from api.media.lora_sources import LoraFile, copy_from
from infra.database import Database
from infra.errors import InvalidRequest
from infra.file_rows import Files
from infra.file_store import FILES, FileStore
from infra.lora_rows import Loras, NewLora, checked_name
from infra.settings import Settings

app = typer.Typer(
    help="Add, list and remove LoRA adapters for image and video models. What is added here, every key may use: a "
    'request names it as {"loras": [{"id": "name:NAME", "weight": 0.8}]}. A running server sees changes at once.',
    no_args_is_help=True,
)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="What requests call it.")],
    path: Annotated[
        Path, typer.Argument(help="The adapter, a .safetensors file of lora_A/lora_B or lora_down/lora_up.")
    ],
    base_model: Annotated[str | None, typer.Option(help="The model that it was made for; shown in lists.")] = None,
) -> None:
    """Add an adapter under a name: it is checked and copied, and the file may go afterwards."""
    checked_name(name)
    try:
        source = path.open("rb")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from error
    with source, install() as (settings, database):
        loras = _loras(settings, database)
        size_bytes = path.stat().st_size
        incoming = loras.files.begin(INTERNAL.name, settings.loras.max_mb << 20, size_bytes, "raise loras.max_mb")
        try:
            facts = copy_from(source, LoraFile(incoming))
            lora, _existed = loras.add(incoming, NewLora(INTERNAL, facts.rank, name, base_model))
        finally:
            incoming.discard()
    typer.echo(f"added {lora.name}: rank {lora.rank}, {lora.size_bytes} bytes, {lora.ref}")


@app.command("list")
def show() -> None:
    """List the adapters of all keys; one without a name is known by its id alone."""
    lines = table("name", "for", "rank", "bytes", "key", "everybody's", "id")
    with install() as (settings, database):
        for lora in _loras(settings, database).all(INTERNAL):
            shared = "yes" if lora.shared and lora.name else ""
            words = (lora.name or "", lora.base_model or "")
            lines.add_row(*map(escape, words), str(lora.rank), str(lora.size_bytes), lora.key, shared, lora.ref)
    standard_output().print(lines)


@app.command("remove")
def remove(name: Annotated[str, typer.Argument(help="The adapter's name, or its id (sha256:…).")]) -> None:
    """Remove an adapter; runs that used it can be run again for as long as their requests are kept."""
    with install() as (settings, database):
        gone = _loras(settings, database).delete(name, INTERNAL)
    typer.echo(f"removed {gone}")


def _loras(settings: Settings, database: Database) -> Loras:
    return Loras(Files(database, FileStore(settings.at(FILES)), settings.files))
