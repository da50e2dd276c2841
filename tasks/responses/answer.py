"""A chat answer as OpenAI's response object."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from infra.clock import wall
from infra.errors import RateLimited, UpstreamRefused, UserError
from infra.types import ItemId, Json
from tasks.corrections.types import Body, choices_of, inner, number, objects

RESPONSE, MESSAGE, CALL, REASONING, COMPACTION = "resp", "msg", "fc", "rs", "cmp"
INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a chat answer ended too soon, in the words of Responses."""


def new_id(kind: str) -> str:
    """An id that nobody can guess, in OpenAI's form."""
    return f"{kind}_{secrets.token_hex(24)}"


def begun(skeleton: Mapping[str, Json]) -> Body:
    """A response that has nothing yet; `skeleton` holds what the request settles."""
    return {
        "id": new_id(RESPONSE),
        "object": "response",
        "created_at": int(wall()),
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        **skeleton,
        "output": [],
    }


def ended(response: Body, output: Iterable[Body], finish_reason: Json, usage: Body) -> Body:
    """The response with its output; `usage` is the chat's, empty if the engine named none.

    OpenAI's document knows no null for it: it is left out until it is known.
    """
    why = INCOMPLETE.get(finish_reason) if isinstance(finish_reason, str) else None
    used: Body = {"usage": usage_of_response(usage)} if usage else {}
    return {
        **response,
        **used,
        "status": "incomplete" if why else "completed",
        "completed_at": None if why else int(wall()),
        "incomplete_details": {"reason": why} if why else None,
        "output": list[Json](output),
    }


def failed(response: Body, code: str, message: str) -> Body:
    """The response, ended by an error; `code` is one of those that Responses know."""
    return {**response, "status": "failed", "error": {"code": code, "message": message}}


def error_code(error: BaseException) -> str:
    """One of the codes that a response's error may have."""
    if isinstance(error, RateLimited):
        return "rate_limit_exceeded"
    return "invalid_prompt" if isinstance(error, UserError | UpstreamRefused) else "server_error"


def response_of(response: Body, answer: Body) -> Body:
    """The response that a whole chat answer makes of the one that was begun."""
    choice = next(iter(choices_of(answer)), {})
    reason = choice.get("finish_reason")
    output = list(_items(inner(choice, "message"), inner(choice, "logprobs"), status_of(reason)))
    return ended(response, output, reason, inner(answer, "usage"))


def status_of(finish_reason: Json) -> str:
    """The status of the item that was being made when the answer ended."""
    return "incomplete" if isinstance(finish_reason, str) and finish_reason in INCOMPLETE else "completed"


def message_item(item_id: ItemId, content: list[Body], status: str) -> Body:
    """A message of the assistant."""
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": list[Json](content)}


def text_part(text: str, logprobs: Iterable[Json] = ()) -> Body:
    """What it says."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def refusal_part(text: str) -> Body:
    """What it refuses with."""
    return {"type": "refusal", "refusal": text}


def reasoning_item(item_id: ItemId, text: str, status: str) -> Body:
    """What a model thought before it answered."""
    content: list[Json] = [{"type": "reasoning_text", "text": text}] if text else []
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": status}


def call_item(item_id: ItemId, call: Body, arguments: str, status: str) -> Body:
    """A function call; `call` is the chat's."""
    name = inner(call, "function").get("name")
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": str(call.get("id") or new_id("call")),
        "name": str(name or ""),
        "arguments": arguments,
    }


def usage_of_response(usage: Body) -> Body:
    """A chat's usage in the names of Responses."""
    read, written = number(usage.get("prompt_tokens")), number(usage.get("completion_tokens"))
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": number(inner(usage, "prompt_tokens_details").get("cached_tokens")),
            "cache_write_tokens": 0,
        },
        "output_tokens": written,
        "output_tokens_details": {
            "reasoning_tokens": number(inner(usage, "completion_tokens_details").get("reasoning_tokens"))
        },
        "total_tokens": read + written,
    }


def _items(message: Body, logprobs: Body, status: str) -> Iterable[Body]:
    """The output items of a chat's message; there is always one, be it empty."""
    thought, said, refused = (message.get(name) for name in ("reasoning_content", "content", "refusal"))
    calls = objects(message.get("tool_calls"))
    if isinstance(thought, str) and thought:
        yield reasoning_item(ItemId(new_id(REASONING)), thought, "completed")
    content: list[Body] = []
    if isinstance(said, str) and (said or not (calls or refused)):
        content.append(text_part(said, objects(logprobs.get("content"))))
    if isinstance(refused, str) and refused:
        content.append(refusal_part(refused))
    if content or not calls:
        yield message_item(ItemId(new_id(MESSAGE)), content or [text_part("")], status)
    for call in calls:
        yield call_item(ItemId(new_id(CALL)), call, str(inner(call, "function").get("arguments") or ""), status)
