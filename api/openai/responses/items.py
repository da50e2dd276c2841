"""What a request gave as the items that are stored and listed: each with an id and, but for compactions, a status, as
OpenAI lists them."""

from api.openai.responses.mapping import items_of
from infra.types import Json
from tasks.responses.answer import CALL, COMPACTION, MESSAGE, REASONING, new_id

Body = dict[str, Json]
_KINDS = {
    "message": MESSAGE,
    "function_call": CALL,
    "function_call_output": "fco",
    "reasoning": REASONING,
    "compaction": COMPACTION,
}


def kept_items(given: Json) -> list[Body]:
    """The items of a checked input; two of one id get ids of their own."""
    items: list[Body] = []
    seen: set[str] = set()
    for item in items_of(given):
        kept = _item(item)
        if str(kept["id"]) in seen:
            kept["id"] = new_id(_KINDS[str(kept["type"])])
        seen.add(str(kept["id"]))
        items.append(kept)
    return items


def _item(item: Body) -> Body:
    kind = str(item["type"])
    given = item.get("id")
    kept: Body = {"id": given if isinstance(given, str) and 0 < len(given) <= 100 else new_id(_KINDS[kind])}
    kept |= {name: value for name, value in item.items() if name != "id"}
    if kind == "compaction":
        return kept
    kept["status"] = item.get("status") or "completed"
    if kind == "message":
        kept["content"] = _content(item.get("content"), by_assistant=item.get("role") == "assistant")
    elif kind == "reasoning":
        kept["summary"] = item.get("summary") or []
    return kept


def _content(content: Json, *, by_assistant: bool) -> list[Json]:
    """The content as a list of parts, in the kinds that its author's messages have."""
    parts: list[Json] = [{"type": "input_text", "text": content}] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = content
    return [_part(part, by_assistant=by_assistant) for part in parts if isinstance(part, dict)]


def _part(part: Body, *, by_assistant: bool) -> Json:
    if part.get("type") not in ("input_text", "output_text"):
        return part
    if not by_assistant:
        return {**part, "type": "input_text"}
    return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
