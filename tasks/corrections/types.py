"""The shape of a correction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import orjson

from infra.errors import EngineFailed
from infra.types import Json

Body = dict[str, Json]
"""A request, an answer or one chunk of a stream. Corrections never change the one they are given, but copies."""

CHAT: Final = "/chat/completions"
COMPLETIONS: Final = "/completions"
EMBEDDINGS: Final = "/embeddings"


@dataclass(frozen=True, slots=True)
class Traits:
    """What a correction needs to know of the engine.

    `service` is a far OpenAI-compatible service, of which we correct nothing but the missing usage of a stream.
    `template_has_tools` tells whether the model's chat template knows tools; without it they are explained in words.
    """

    service: bool = False
    template_has_tools: bool = True


def traits_of(props: Mapping[str, Json]) -> Traits:
    """The traits of a llama.cpp engine, from the answer of its `GET /props`."""
    caps = props.get("chat_template_caps")
    return Traits(template_has_tools=not isinstance(caps, dict) or caps.get("supports_tools") is not False)


class ChunkMender(Protocol):
    """Corrects the chunks of one stream, in their order."""

    def chunk(self, chunk: Body) -> list[Body]:
        """What is to be sent instead of this chunk: nothing, itself, or several."""
        ...

    def end(self) -> list[Body]:
        """What is to be sent after the last chunk, before `[DONE]`."""
        ...


@dataclass(frozen=True, slots=True)
class Correction:
    """One fault of the engine, and what is done about it.

    `applies` is asked only if the request has one of `fields` (all requests, if `fields` is empty). `request` gives the
    body that is sent instead; `response` and `stream` put the answer right and are given the request as it was before.
    With `gathers` the engine is asked for a stream, and an answer is made of it before `response` sees it.
    """

    name: str
    why: str
    paths: frozenset[str]
    fields: frozenset[str]
    applies: Callable[[Body, Traits], bool]
    request: Callable[[Body, Traits], Body] | None = None
    response: Callable[[Body, Body], Body] | None = None
    stream: Callable[[Body], ChunkMender] | None = None
    gathers: bool = False


def object_of(raw: bytes, engine: str = "the engine") -> Body:
    """An engine's whole answer; `engine` is what its error calls it.

    Raises:
        EngineFailed: it is no JSON object.
    """
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise EngineFailed(f"{engine} did not answer in JSON") from error
    if not isinstance(answer, dict):
        raise EngineFailed(f"{engine} did not answer with a JSON object")
    return answer


def choices_of(answer: Body) -> list[Body]:
    """The choices of an answer or a chunk."""
    choices = answer.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def with_choices(answer: Body, choices: list[Body]) -> Body:
    """The answer with other choices."""
    return {**answer, "choices": list[Json](choices)}


def inner(value: Body, key: str) -> Body:
    """The object under `key`, or an empty one."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def objects(value: Json) -> list[Body]:
    """The objects in a list, or none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def number(value: Json) -> int:
    """A count, or 0."""
    return value if isinstance(value, int) else 0


def index_of(choice: Body) -> int:
    """The choice's place among the answers."""
    return number(choice.get("index"))
