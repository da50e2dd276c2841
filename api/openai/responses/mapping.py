"""A request for a response as a request for a chat, and what the response will repeat of it. Pure."""

from collections.abc import Iterator
from typing import Final

from api.openai.responses.input_schema import typed
from api.openai.responses.schema import KNOWN
from api.openai.schemas.shared import Body, Sampling
from infra.errors import InvalidRequest
from infra.types import Json
from workers.types import ModelEntry

_SAME: Final = (
    *Sampling.__annotations__,
    "parallel_tool_calls",
    "enable_thinking",
    "chat_template_kwargs",
    "user",
)
"""Fields of the same name and meaning in both."""
_LOGPROBS: Final = "message.output_text.logprobs"


def chat_of(body: Body) -> Body:
    """The chat that is asked for a response; `body` is checked, its input the whole conversation.

    Raises:
        InvalidRequest: the output of a call that nobody made.
    """
    chat: Body = {"model": body["model"], "messages": list[Json](_messages(body))}
    chat |= {name: value for name, value in body.items() if name not in KNOWN}  # a far service may know them
    chat |= {name: body[name] for name in _SAME if body.get(name) is not None}
    if body.get("stream") is True:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    if body.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    effort = _inner(body, "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    if _LOGPROBS in _list(body.get("include")):
        chat |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    form = _form(_inner(_inner(body, "text"), "format"))
    if form is not None:
        chat["response_format"] = form
    return chat | _tools(body)


def skeleton_of(body: Body, entry: ModelEntry) -> Body:
    """What the response repeats of its request; what the request does not settle is null, or the model's own."""
    text, reasoning = _inner(body, "text"), _inner(body, "reasoning")
    settled: Body = {
        "background": body.get("background") is True,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "metadata": body.get("metadata") or {},
        "model": entry.name,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": body.get("temperature", entry.sampling.get("temperature")),
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [_tool_repeated(tool) for tool in _objects(body.get("tools"))],
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": body.get("top_p", entry.sampling.get("top_p")),
        "truncation": body.get("truncation") or "disabled",
    }
    hints = ("user", "safety_identifier", "prompt_cache_key")
    return settled | {name: body[name] for name in hints if body.get(name) is not None}


def opening(body: Body) -> str:
    """The stable opening of a conversation: its instructions and its first user text."""
    for message in _objects(list[Json](_plain_messages(body))):
        if message.get("role") == "user":
            return f"{body.get('instructions') or ''}\n{_text(message.get('content'))}"
    return f"{body.get('instructions') or ''}\n"


def items_of(given: Json) -> list[Body]:
    """The input as a list of items."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return _objects(typed(given))


def _messages(body: Body) -> Iterator[Body]:
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        yield {"role": "system", "content": instructions}
    yield from _plain_messages(body)


def _plain_messages(body: Body) -> Iterator[Body]:
    """The conversation; calls that follow each other, or what the assistant said before them, are one message."""
    made: set[Json] = set()
    assistant: Body | None = None
    for item in items_of(body.get("input")):
        kind = item.get("type")
        if kind == "reasoning":
            continue
        if kind == "function_call":
            made.add(item.get("call_id"))
            assistant = assistant or {"role": "assistant", "content": None}
            assistant["tool_calls"] = [*_list(assistant.get("tool_calls")), _call(item)]
            continue
        if assistant is not None:
            yield assistant
            assistant = None
        if kind == "function_call_output":
            yield _tool_answer(item, made)
        elif item.get("role") == "assistant":
            assistant = {"role": "assistant", "content": _text(item.get("content"))}
        else:
            yield _message(item)
    if assistant is not None:
        yield assistant


def _message(item: Body) -> Body:
    role = "user" if item.get("role") == "user" else "system"
    content = item.get("content")
    if not any(part.get("type") == "input_image" for part in _objects(content)):
        return {"role": role, "content": _text(content)}
    return {"role": role, "content": [_part(part) for part in _objects(content)]}


def _part(part: Body) -> Json:
    if part.get("type") != "input_image":
        return {"type": "text", "text": _text([part])}
    image: Body = {"url": part.get("image_url")}
    if part.get("detail") is not None:
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _call(item: Body) -> Json:
    function: Body = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _tool_answer(item: Body, made: set[Json]) -> Body:
    call_id = item.get("call_id")
    if call_id not in made:
        raise InvalidRequest(
            f"No tool call found for function call output with call_id {str(call_id)[:200]}: give the call's item "
            "before it, or the previous_response_id of the response that made the call",
            param="input",
        )
    return {"role": "tool", "tool_call_id": call_id, "content": _text(item.get("output"))}


def _form(form: Body) -> Json:
    """A chat's `response_format`; None for plain text."""
    if form.get("type") == "json_schema":
        named = {name: form[name] for name in ("name", "schema", "strict", "description") if form.get(name) is not None}
        return {"type": "json_schema", "json_schema": named}
    return {"type": "json_object"} if form.get("type") == "json_object" else None


def _tools(body: Body) -> Body:
    """A chat's `tools` and `tool_choice`."""
    tools = _objects(body.get("tools"))
    if not tools:
        return {}
    chat: Body = {"tools": [_tool(tool) for tool in tools]}
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice["type"] == "function":
        choice = _named(choice)
    elif isinstance(choice, dict):
        named: list[Json] = [_named(tool) for tool in _objects(choice["tools"])]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": named}}
    return chat | ({} if choice is None else {"tool_choice": choice})


def _named(tool: Body) -> Json:
    return {"type": "function", "function": {"name": tool.get("name")}}


def _tool(tool: Body) -> Json:
    told = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in told if tool.get(name) is not None}}


def _tool_repeated(tool: Body) -> Json:
    return {"description": None, "parameters": None, "strict": None, **tool}


def _text(content: Json) -> str:
    """The text of a message's content, or of a call's output; a refusal is what the assistant said."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in _objects(content))


def _inner(value: Body, name: str) -> Body:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _objects(value: Json) -> list[Body]:
    return [item for item in _list(value) if isinstance(item, dict)]
