"""The types of work pools that the UI offers, answered from this machine: Prefect would ask the internet for them."""

import json
from pathlib import Path
from typing import Any

from prefect.server.api import collections

VIEWS = Path(collections.__file__).parent / "collections_data" / "views"
"""What Prefect falls back to when it has no internet."""
WORKER_TYPES = "aggregate-worker-metadata"
_RUNS = "CoderAI's own flows"
OWN_TYPES: dict[str, dict[str, Any]] = {
    "coderai-card": {
        "type": "coderai-card",
        "display_name": "CoderAI card",
        "description": "A card of this machine. Its pause switch and its limit hold for requests and for jobs.",
        "default_base_job_configuration": {
            "job_configuration": {"runs": _RUNS, "device": "{{ device }}"},
            "variables": {
                "type": "object",
                "properties": {
                    "device": {
                        "title": "Device",
                        "description": "The card of this machine that runs of this pool stay on, "
                        "by the name of its own pool: cpu, ...",
                        "type": "string",
                    }
                },
            },
        },
        "documentation_url": "https://docs.prefect.io/v3/concepts/work-pools",
        "install_command": "coderai serve",
        "is_beta": False,
        "logo_url": "",
    },
}
"""`coderai-head` is not offered: an install has one, and makes it itself."""


async def view_content(view: str) -> dict[str, Any]:
    """A view of Prefect's registry as it came with Prefect, with our own types of work pools in it.

    Raises:
        KeyError: there is no such view.
    """
    path = VIEWS / f"{view}.json"
    if view not in collections.KNOWN_VIEWS or not path.exists():
        raise KeyError(view)
    content: dict[str, Any] = json.loads(path.read_bytes())
    return {"coderai": OWN_TYPES} | content if view == WORKER_TYPES else content


def stay_here() -> None:
    """Answer from this machine from now on."""
    collections.get_collection_view = view_content
