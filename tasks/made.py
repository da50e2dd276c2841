"""Answers with files that a model has made: JSON that names them by reference, until the edge gives them to a client.

`{"created": …, "data": [{"blob": "sha256:…", "media_type": "image/png", "suffix": "png", …}], "response_format": …}`.
Whatever else stands beside or in `data` is part of the answer as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from infra.clock import wall
from infra.types import Json
from tasks.types import TaskResult

FILES_TYPE: Final = "application/vnd.coderai.files+json"
"""The media type of such an answer."""


def files_answer(data: Sequence[Json], response_format: str, extra: Mapping[str, Json] | None = None) -> TaskResult:
    """The last step's result, from the files in their order; `extra` stands beside them."""
    body = {"created": round(wall()), "data": list(data), "response_format": response_format, **(extra or {})}
    return TaskResult(orjson.dumps(body), media_type=FILES_TYPE)
