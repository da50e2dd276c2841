"""A chat completion as it is stored and shown: OpenAI's object with the settings of its request."""

from typing import Final

from infra.clock import wall
from infra.types import ChatId, Json, RunId
from tasks.corrections.types import Body, choices_of, objects
from tasks.gathered import KIND
from workers.types import ModelEntry

_SETTINGS: Final = ("tool_choice", "tools", "response_format", "seed")
_SAMPLING: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


def is_whole(answer: Body) -> bool:
    """Whether a body is a chat's answer, not a far service's error in its place."""
    return bool(choices_of(answer)) and answer.get("error") is None


def completion_of(answer: Body, request: Body, entry: ModelEntry, run: RunId) -> Body:
    """The object that is stored, without its `metadata`: the answer, and what it was asked with. What the request does
    not settle is null, or the model's own."""
    return {
        **{name: value for name, value in answer.items() if name != "timings"},
        "object": KIND,
        "created": answer.get("created") or int(wall()),
        "model": entry.name,
        "request_id": run,
        "service_tier": answer.get("service_tier") or "default",
        "input_user": request.get("user"),
        **{name: request.get(name) for name in _SETTINGS},
        **{name: _given(request, entry, name) for name in _SAMPLING},
    }


def labels_of(request: Body) -> dict[str, str]:
    """The `metadata` of a checked request."""
    metadata = request.get("metadata")
    return {name: str(value) for name, value in metadata.items()} if isinstance(metadata, dict) else {}


def messages_of(request: Body) -> list[Body]:
    """The messages of a checked request."""
    return objects(request.get("messages"))


def message_shown(chat: ChatId, number: int, message: Body) -> Body:
    """A message as it is listed; a content in parts stands in `content_parts`, and `content` is null."""
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    return {
        "name": None,
        "refusal": None,
        **message,
        "id": f"{chat}-{number}",
        "content": None if parts is not None else content,
        "content_parts": parts,
    }


def _given(request: Body, entry: ModelEntry, name: str) -> Json:
    value = request.get(name)
    return entry.sampling.get(name) if value is None else value
