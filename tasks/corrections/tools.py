"""Tools: what `tool_choice` promises, kept for every model.

llama.cpp's server shows the tools to the model even with `none`, does not hold it to a call with `required`, ignores a
named tool, and reads calls only in the exact form of the model's own template; templates without tools lose them.
"""

import json
from typing import Final

from infra.types import Json
from tasks.corrections.calls import CallsInStream, Reader, calls_in, forced_call, with_calls
from tasks.corrections.schemas import rooted
from tasks.corrections.types import Body, Traits, inner, objects

_TOOL_FIELDS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
_SCHEMA_WORDS: Final = frozenset({"type", "properties", "anyOf", "oneOf", "allOf", "$ref", "enum", "const"})

_EXPLAINED: Final = """# Tools

You may call one or more functions to help with the user's request. You are given their signatures as JSON:
<tools>
{tools}
</tools>

To call a function, answer with nothing but a JSON object with its name and arguments:
{{"name": <function-name>, "arguments": <arguments-object>}}"""


def offered_tools(body: Body) -> list[Body]:
    """The tools that the model may call: those given, or the allowed ones among them."""
    tools = objects(body.get("tools"))
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return tools
    if choice.get("type") == "allowed_tools":
        allowed = {inner(tool, "function").get("name") for tool in objects(inner(choice, "allowed_tools").get("tools"))}
        return [tool for tool in tools if inner(tool, "function").get("name") in allowed]
    return [tool for tool in tools if inner(tool, "function").get("name") == inner(choice, "function").get("name")]


def none_applies(body: Body, _traits: Traits) -> bool:
    """Tools that must not be called."""
    return body.get("tool_choice") == "none" or body.get("tools") in ([], None)


def none_request(body: Body, _traits: Traits) -> Body:
    """Without the tools: llama.cpp would show them to the model all the same."""
    return _without_tools(body)


def forced_applies(body: Body, _traits: Traits) -> bool:
    """A call is demanded."""
    return bool(body.get("tools")) and not _is_free(body)


def forced_request(body: Body, traits: Traits) -> Body:
    """Hold the answer to one call by a JSON schema made of the tools."""
    tools = offered_tools(body)
    form: Body = {"name": "tool_call", "strict": True, "schema": _one_call(tools)}
    answer: Body = {"type": "json_schema", "json_schema": form}
    return {**_shown(body, tools, traits), "response_format": answer}


def forced_response(answer: Body, _body: Body) -> Body:
    """The text as a call."""
    return with_calls(answer, forced_call)


def forced_stream(_body: Body) -> CallsInStream:
    """The same in a stream."""
    return CallsInStream(forced_call, forced=True)


def auto_applies(body: Body, _traits: Traits) -> bool:
    """The model may call."""
    return bool(body.get("tools")) and body.get("tool_choice") != "none" and _is_free(body)


def auto_request(body: Body, traits: Traits) -> Body:
    """The tools in words where the template has none, only the allowed ones, and no `tool_choice` of a newer form."""
    return _shown(body, offered_tools(body), traits)


def auto_response(answer: Body, body: Body) -> Body:
    """Calls in the text as calls."""
    return with_calls(answer, _reader(body))


def auto_stream(body: Body) -> CallsInStream:
    """The same in a stream."""
    return CallsInStream(_reader(body), forced=False)


def _is_free(body: Body) -> bool:
    """Whether it is left to the model whether it calls."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice = inner(choice, "allowed_tools").get("mode")
    return choice in (None, "none", "auto")


def _reader(body: Body) -> Reader:
    names = [str(inner(tool, "function").get("name")) for tool in offered_tools(body)]
    single = body.get("parallel_tool_calls") is False

    def read(text: str) -> list[Body] | None:
        calls = calls_in(text, names)
        return calls[:1] if calls and single else calls

    return read


def _shown(body: Body, tools: list[Body], traits: Traits) -> Body:
    """The request with the tools where this model finds them."""
    sent = _without_tools(body)
    if traits.template_has_tools:
        sent["tools"] = list[Json](tools)
        if "parallel_tool_calls" in body:
            sent["parallel_tool_calls"] = body["parallel_tool_calls"]
        return sent
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    sent["messages"] = _told(objects(body.get("messages")), _EXPLAINED.format(tools=lines))
    return sent


def _told(messages: list[Body], words: str) -> list[Json]:
    """The messages with words added to the first, if it is the system's, or before it."""
    first = messages[0] if messages else {}
    if first.get("role") not in ("system", "developer"):
        return [{"role": "system", "content": words}, *messages]
    content = first.get("content")
    added: Json = [*content, {"type": "text", "text": words}] if isinstance(content, list) else f"{content}\n\n{words}"
    return [{**first, "content": added}, *messages[1:]]


def _without_tools(body: Body) -> Body:
    return {key: value for key, value in body.items() if key not in _TOOL_FIELDS}


def _one_call(tools: list[Body]) -> Body:
    """The JSON schema of one call of one of the tools. Parameters stand under `$defs`: references hold."""
    definitions: Body = {}
    calls: list[Json] = []
    for place, tool in enumerate(tools):
        function = inner(tool, "function")
        key = f"tool_{place}"
        definitions[key] = rooted(_parameters(function), f"#/$defs/{key}")
        properties: Body = {"name": {"const": function.get("name")}, "arguments": {"$ref": f"#/$defs/{key}"}}
        calls.append(
            {
                "type": "object",
                "properties": properties,
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": calls, "$defs": definitions}


def _parameters(function: Body) -> Body:
    """A function's parameters; an object of any form if it describes none."""
    parameters = inner(function, "parameters")
    return parameters if parameters.keys() & _SCHEMA_WORDS else {"type": "object"}
