"""`coderai pools`: the work pools, which the router obeys."""

import json
from typing import Annotated, Any
from urllib.parse import quote

import typer

from api.cli.local import call_front, standard_output, table
from api.cli.run_display import plain
from infra.errors import InvalidRequest
from infra.settings import load_settings

app = typer.Typer(
    help="Pause, resume and limit work pools: one a card, and `head`, which stands for this install.",
    no_args_is_help=True,
)
Pool = Annotated[str, typer.Argument(help="The pool's name (`coderai pools list`).")]


@app.command("list")
def show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False) -> None:
    """Show every work pool of the running server."""
    pools = call_front(load_settings(), "GET", "/v1/pools")["data"]
    if as_json:
        typer.echo(json.dumps(pools, indent=2))
        return
    lines = table("pool", "type", "state", "limit", "running", "remark")
    for pool in pools:
        limit = pool["concurrency_limit"]
        lines.add_row(
            plain(pool["name"]),
            plain(pool["type"]),
            "paused" if pool["paused"] else "open",
            "none" if limit is None else str(limit),
            str(pool["running"]),
            plain(pool["unusable"]),
        )
    standard_output().print(lines)


@app.command("pause")
def pause(pool: Pool) -> None:
    """Give a pool no new work; what runs there goes on."""
    _change(pool, paused=True)


@app.command("resume")
def resume(pool: Pool) -> None:
    """Give a paused pool work again."""
    _change(pool, paused=False)


@app.command("limit")
def limit(
    pool: Pool, most: Annotated[str, typer.Argument(help="Steps at once, of requests and jobs together; or 'none'.")]
) -> None:
    """Bound what runs in a pool at once, or lift the bound with 'none'."""
    if most != "none" and not most.isdecimal():
        raise InvalidRequest(f"give a number of steps or 'none', not {most!r}")
    _change(pool, concurrency_limit=None if most == "none" else int(most))


def _change(pool: str, **wish: Any) -> None:
    now = call_front(load_settings(), "PATCH", f"/v1/pools/{quote(pool, safe='')}", wish)
    bound = "" if now["concurrency_limit"] is None else f", {now['concurrency_limit']} at once"
    typer.echo(f"pool {now['name']} is {'paused' if now['paused'] else 'open'}{bound}")
