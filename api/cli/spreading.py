"""The options of `coderai models add` that say how requests for a model are spread over several engines."""

from typing import Annotated, Any

import typer

Distribute = Annotated[bool | None, typer.Option(help="Whether requests may be spread over several engines.")]
Nodes = Annotated[
    list[str] | None, typer.Option(help="A pool or engine that may take parts; may be given several times.")
]
MaxParts = Annotated[int | None, typer.Option(help="Parts of one request, at the most.")]
MinItems = Annotated[int | None, typer.Option(help="A request of fewer items is not split.")]
ChunkSeconds = Annotated[float | None, typer.Option(help="Longest window that a recording is cut into.")]
Hedge = Annotated[bool | None, typer.Option(help="Whether a late part is started once more elsewhere.")]


def given(**options: Any) -> dict[str, Any]:
    """What was said: the options that have a value. A list that is empty was not given."""
    return {name: value for name, value in options.items() if value is not None and value != []}
