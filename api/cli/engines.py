"""`coderai engines`: the processes that serve models, building one for a GPU, installing one."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from api.cli.local import call_front, standard_output, table
from infra.settings import cache_root, load_settings
from workers.engine.build import Progress as BuildProgress
from workers.engine.build import Report, find_toolchain
from workers.engine.build import build as build_program
from workers.engine.piper.install import Stage, piper_folder
from workers.engine.piper.install import install as install_environment
from workers.engine.recipe import llama_recipe

app = typer.Typer(help="See the engines; build llama.cpp for a GPU or for RPC; install piper.", no_args_is_help=True)


build = typer.Typer(help="Build an engine's program for this machine.", no_args_is_help=True)
app.add_typer(build, name="build")
install = typer.Typer(help="Install an engine that has an environment of its own.", no_args_is_help=True)
app.add_typer(install, name="install")


@build.command("llama")
def build_llama(
    jobs: Annotated[int | None, typer.Option(min=1, help="Compilers at once; default: one a core.")] = None,
) -> None:
    """Build llama.cpp with RPC, and for CUDA or Vulkan where their compilers are found.

    Needed only for what the bundled wheel lacks. It takes minutes, is kept in the cache folder, and goes on where it
    stopped. Set `llama.server_bin` to the printed path to use it.
    """
    console = Console(stderr=True)
    with Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), console=console) as bars:
        bar = bars.add_task("llama.cpp", total=100)

        def report(progress: BuildProgress) -> None:
            bars.update(bar, description=f"llama.cpp: {progress.stage}", completed=progress.percent or 0)

        program = asyncio.run(_build(report, jobs))
    typer.echo(program)


async def _build(report: Report, jobs: int | None) -> Path:
    tools = await find_toolchain()
    return await build_program(llama_recipe(tools), cache_root() / "llama", report, tools=tools, jobs=jobs)


@install.command("piper")
def install_piper() -> None:
    """Install piper, which speaks (`/v1/audio/speech`): about 230 MB, pinned by version and sha256.

    It is under the GPL, and so kept apart: in the cache folder, run as a process of its own. `make serve` does this.
    """
    console = Console(stderr=True)
    with console.status("piper") as status:

        def report(stage: Stage) -> None:
            status.update(
                f"piper: {stage}" if stage != "wait" else "piper: another process installs it; waiting for it"
            )

        install_environment(report)
    typer.echo(piper_folder())


@app.command("list")
def show() -> None:
    """Show every card and every engine of the running server."""
    cluster = call_front(load_settings(), "GET", "/admin/api/engines")
    pools = table("pool", "backend", "free GiB", "of", "remark")
    for pool in cluster["pools"]:
        remark = escape(pool["paused"] or pool["unusable"] or "")
        pools.add_row(pool["pool"], pool["backend"], _gib(pool["free_bytes"]), _gib(pool["total_bytes"]), remark)
    engines = table("engine", "state", "in flight", "waiting", "slots", "GiB", "remark")
    for engine in cluster["engines"]:
        engines.add_row(
            engine["id"],
            engine["state"],
            str(engine["in_flight"]),
            str(engine["waiting"]),
            str(engine["slots"]),
            _gib(engine["memory_bytes"]),
            escape(engine["reason"]),
        )
    console = standard_output()
    console.print(pools)
    console.print(engines)


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / 2**30:.2f}"
