"""`coderai usage`: what each key used of each model."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from api.cli.local import install, standard_output, table
from infra.usage import list_usage


def usage(days: Annotated[int, typer.Option(min=1, help="How many days back, today included (UTC).")] = 7) -> None:
    """Show requests, errors, tokens, units (pages read, seconds heard, characters spoken, images and
    videos made) and time, by day, key and model."""
    today = datetime.now(UTC).date()
    lines = table(
        "day", "key", "model", "kind", "requests", "errors", "prompt tokens", "completion tokens", "seconds", "units"
    )
    with install() as (_settings, database):
        for row in list_usage(database, first_day=today - timedelta(days=days - 1), last_day=today):
            tokens = (row.prompt_tokens, row.completion_tokens)
            counts = (row.requests, row.errors, *tokens, round(row.seconds, 1), f"{row.units:.10g}")
            lines.add_row(str(row.day), row.key_name, row.model, row.kind, *(str(count) for count in counts))
    standard_output().print(lines)
