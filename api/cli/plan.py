"""`coderai plan`: what a request would do, without doing it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from api.cli.local import call_front
from api.cli.local_files import described
from infra.errors import InvalidRequest
from infra.settings import load_settings


def plan(
    request: Annotated[Path, typer.Option(help="A file with the request's JSON body; - reads standard input.")],
    endpoint: Annotated[str, typer.Option(help="chat, embeddings, transcription, ocr, …")] = "chat",
) -> None:
    """Print the DAG of a request and where each step would go, with the reason for every candidate passed over.

    Where the endpoint takes a file, the request names a path of this machine; the file itself is not sent.
    """
    try:
        text = typer.get_text_stream("stdin").read() if str(request) == "-" else request.read_text()
        body = json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{request} is no JSON request: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequest(f"{request} is no JSON request: it must be an object")
    asked = {"endpoint": endpoint, "request": described(endpoint, body)}
    answer = call_front(load_settings(), "POST", "/v1/plan", asked)
    typer.echo(json.dumps(answer, indent=2))
