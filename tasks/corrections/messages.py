"""Messages in forms that llama.cpp's server refuses or drops."""

from typing import Final

import orjson

from infra.types import Json
from tasks.corrections.types import Body, Traits, inner, objects

_NO_THINKING: Final = "none"


def applies(body: Body, _traits: Traits) -> bool:
    """Any message needs another form."""
    messages = body.get("messages")
    return isinstance(messages, list) and any(_is_odd(message) for message in messages if isinstance(message, dict))


def request(body: Body, _traits: Traits) -> Body:
    """All messages in the form that the server takes."""
    return {**body, "messages": [_plain(message) for message in objects(body.get("messages"))]}


def _is_odd(message: Body) -> bool:
    role = message.get("role")
    if role == "function":
        return True
    if role != "assistant":
        return False
    if message.get("function_call"):
        return True
    calls, content = objects(message.get("tool_calls")), message.get("content")
    if any(_odd_arguments(one) is not None for one in calls):
        return True
    return (content is None and not calls) or any(part.get("type") == "refusal" for part in objects(content))


def _plain(message: Body) -> Body:
    role = message.get("role")
    if role == "function":
        name = str(message.get("name"))
        return {"role": "tool", "tool_call_id": _id_of(name), "name": name, "content": message.get("content") or ""}
    return _assistant(message) if role == "assistant" else message


def _assistant(message: Body) -> Body:
    """A refusal is what the assistant said; the older function call is a tool call; arguments are JSON objects."""
    plain = {key: value for key, value in message.items() if key not in ("function_call", "refusal", "audio")}
    content = message.get("content")
    if isinstance(content, list):
        plain["content"] = "".join(str(part.get("text") or part.get("refusal") or "") for part in objects(content))
    elif content is None and isinstance(message.get("refusal"), str):
        plain["content"] = message["refusal"]
    called = message.get("function_call")
    calls = objects(message.get("tool_calls"))
    if isinstance(called, dict):
        calls = [{"id": _id_of(str(called.get("name"))), "type": "function", "function": called}]
    if calls:
        plain["tool_calls"] = [_with_object(one) for one in calls]
    elif plain.get("content") is None:
        plain["content"] = ""
    return plain


def _with_object(one: Body) -> Body:
    mended = _odd_arguments(one)
    return one if mended is None else {**one, "function": {**inner(one, "function"), "arguments": mended}}


def _odd_arguments(one: Body) -> str | None:
    """What to send for arguments that are no JSON object; None if they are one, or the call is not a function's."""
    arguments = inner(one, "function").get("arguments")
    if not isinstance(arguments, str):
        return None
    try:
        parsed: Json = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        parsed = None if not arguments.strip() else arguments
    if isinstance(parsed, dict):
        return None
    return orjson.dumps({} if parsed is None else {"value": parsed}).decode()


def _id_of(name: str) -> str:
    """The older form has no ids: the function's name stands for one."""
    return f"call_{name}"


def thinking_applies(body: Body, _traits: Traits) -> bool:
    """Thinking is switched by a field of the request."""
    return isinstance(body.get("enable_thinking"), bool) or body.get("reasoning_effort") == _NO_THINKING


def thinking_request(body: Body, _traits: Traits) -> Body:
    """By a variable of the chat template, which is where the server looks."""
    wanted = body.get("enable_thinking")
    switch: Body = {"enable_thinking": wanted if isinstance(wanted, bool) else False}
    plain = {key: value for key, value in body.items() if key != "enable_thinking"}
    return {**plain, "chat_template_kwargs": {**switch, **inner(body, "chat_template_kwargs")}}
