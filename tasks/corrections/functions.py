"""The older `functions` and `function_call`, which llama.cpp ignores: asked for as tools, answered as functions."""

from infra.types import Json
from tasks.corrections.types import Body, Traits, choices_of, inner, objects, with_choices


def applies(body: Body, _traits: Traits) -> bool:
    """The older form is used, and not beside the newer one, which then holds."""
    return bool(body.get("functions")) and not body.get("tools")


def request(body: Body, _traits: Traits) -> Body:
    """The same with tools; the older form knows one call only."""
    plain = {key: value for key, value in body.items() if key not in ("functions", "function_call")}
    tools: list[Json] = [{"type": "function", "function": function} for function in objects(body.get("functions"))]
    choice = body.get("function_call")
    if isinstance(choice, dict):
        choice = {"type": "function", "function": choice}
    return {**plain, "tools": tools, "tool_choice": choice or "auto", "parallel_tool_calls": False}


def response(answer: Body, _body: Body) -> Body:
    """The call in the older form."""
    return with_choices(answer, [_older(choice) for choice in choices_of(answer)])


class OlderCalls:
    """The same in a stream."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def chunk(self, chunk: Body) -> list[Body]:
        """The chunk with its call in the older form."""
        return [response(chunk, self._body)]

    def end(self) -> list[Body]:
        """Nothing."""
        return []


def _older(choice: Body) -> Body:
    older = dict(choice)
    for key in ("message", "delta"):
        calls = objects(inner(choice, key).get("tool_calls"))
        if calls:
            kept = {name: value for name, value in inner(choice, key).items() if name != "tool_calls"}
            older[key] = {**kept, "function_call": calls[0].get("function")}
    if choice.get("finish_reason") == "tool_calls":
        older["finish_reason"] = "function_call"
    return older
