"""The hot routes, by name and by path: how each request is checked and planned."""

from typing import Any

from pydantic import TypeAdapter

from api.openai.endpoint import Checked, Resource
from api.openai.schemas import chat, completions, embeddings, rerank
from flows.chat import plan_chat, plan_completions
from flows.embeddings import plan_embeddings
from flows.rerank import plan_rerank
from infra.types import Json
from workers.types import Capability, ModelEntry, ModelFormat

Body = dict[str, Json]


def _far(entry: ModelEntry) -> bool:
    """A far service may know fields that we do not: they are its business."""
    return entry.format is ModelFormat.SERVICE


def _chat(body: Body, entry: ModelEntry) -> Checked:
    view = chat.check(body, unknown_fields=_far(entry))
    return Checked(body, view.stream)


def _completions(body: Body, entry: ModelEntry) -> Checked:
    view = completions.check(body, unknown_fields=_far(entry))
    return Checked(body, view.stream)


def _embeddings(body: Body, entry: ModelEntry) -> Checked:
    embeddings.check(body, unknown_fields=_far(entry))
    return Checked(body)


def _rerank(body: Body, entry: ModelEntry) -> Checked:
    rerank.check(body, unknown_fields=_far(entry))
    return Checked({**body, "documents": list[Json](rerank.texts(body))})


RESOURCES: dict[str, Resource] = {
    "chat": Resource(Capability.CHAT, _chat, plan_chat, chat.opening),
    "completions": Resource(Capability.COMPLETIONS, _completions, plan_completions, completions.opening),
    "embeddings": Resource(Capability.EMBEDDINGS, _embeddings, plan_embeddings),
    "rerank": Resource(Capability.RERANK, _rerank, plan_rerank),
}
PATHS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
}


def request_schemas() -> dict[str, dict[str, Any]]:
    """The JSON schema of each hot route's body; references point below `#/components/schemas`."""
    shapes = {
        "chat": chat.ChatBody,
        "completions": completions.CompletionsBody,
        "embeddings": embeddings.EmbeddingsBody,
        "rerank": rerank.RerankBody,
    }
    return {
        name: TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}")
        for name, shape in shapes.items()
    }
