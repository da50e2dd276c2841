"""The command line's root: `coderai COMMAND --help` says what each does."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from api.cli import doctor, engines, loras, models, plan, pools, runs, serve, tokens, usage
from infra.errors import CoderAIError

app = typer.Typer(
    name="coderai",
    help="One OpenAI-compatible API in front of every card, machine and rented GPU you have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.add_typer(models.app, name="models")
app.add_typer(loras.app, name="loras")
app.add_typer(tokens.app, name="tokens")
app.command("plan")(plan.plan)
app.add_typer(engines.app, name="engines")
app.add_typer(pools.app, name="pools")
app.add_typer(runs.app, name="runs")
app.command("usage")(usage.usage)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Run a command; what the operator can mend is one line, without a traceback."""
    try:
        app()
    except CoderAIError as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(error.message)}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
