"""`coderai tokens`: API keys."""

from typing import Annotated

import typer

from api.cli.local import install, standard_output, table
from infra.tokens import create_key, list_keys, revoke_key

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="What the key is called in logs and metrics.")],
    scope: Annotated[str, typer.Option(help="user: the API; node: what a head needs of a node; admin: all.")] = "user",
) -> None:
    """Make a key and print it, alone: it is not kept and not shown again."""
    with install() as (_settings, database):
        typer.echo(create_key(database, name, scope))


@app.command("list")
def show() -> None:
    """List the keys' names; the keys themselves are not kept."""
    lines = table("name", "scope", "made", "revoked")
    with install() as (_settings, database):
        for key in list_keys(database):
            revoked = f"{key.revoked_at:%Y-%m-%d %H:%M}" if key.revoked_at else ""
            lines.add_row(key.name, key.scope, f"{key.created_at:%Y-%m-%d %H:%M}", revoked)
    standard_output().print(lines)


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="The key's name.")]) -> None:
    """End a key; a running server refuses it within two seconds."""
    with install() as (_settings, database):
        revoke_key(database, name)
    typer.echo(f"revoked {name}")
