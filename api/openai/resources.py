"""The hot routes, by name and by path."""

from typing import Any

from api.openai.endpoint import Checked, Resource
from flows.chat import plan_chat, plan_completions
from flows.embeddings import plan_embeddings
from flows.rerank import plan_rerank
from infra.types import Json
from workers.types import Capability, ModelEntry


def _pass(body: dict[str, Json], _entry: ModelEntry) -> Checked:
    return Checked(body, bool(body.get("stream")), None)


RESOURCES: dict[str, Resource] = {
    "chat": Resource(Capability.CHAT, _pass, plan_chat),
    "completions": Resource(Capability.COMPLETIONS, _pass, plan_completions),
    "embeddings": Resource(Capability.EMBEDDINGS, _pass, plan_embeddings),
    "rerank": Resource(Capability.RERANK, _pass, plan_rerank),
}
PATHS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
}
REQUEST_SCHEMAS: dict[str, dict[str, Any]] = {name: {"type": "object"} for name in RESOURCES}
