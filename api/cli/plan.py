"""`coderai plan`: what a request would do, without doing it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from api.cli.local import call_front
from infra.errors import InvalidRequest
from infra.settings import load_settings


def plan(
    request: Annotated[Path, typer.Option(help="A file with the request's JSON body; - reads standard input.")],
    endpoint: Annotated[str, typer.Option(help="chat, completions, embeddings or rerank.")] = "chat",
) -> None:
    """Print the DAG of a request and where each step would go, with the reason for every candidate passed over."""
    try:
        text = typer.get_text_stream("stdin").read() if str(request) == "-" else request.read_text()
        body = json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{request} is no JSON request: {error}") from error
    answer = call_front(load_settings(), "POST", "/v1/plan", {"endpoint": endpoint, "request": body})
    typer.echo(json.dumps(answer, indent=2))
