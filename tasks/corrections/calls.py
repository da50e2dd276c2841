"""Tool calls that stand in an answer's text, read out of it."""

import json
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from infra.types import Json
from tasks.corrections.types import Body, choices_of, index_of, inner, with_choices

_DECODER: Final = json.JSONDecoder()
_AROUND: Final = re.compile(r"(?:[\s,;]|</?tool_calls?>|```(?:json|tool_calls?)?)*")
"""What models put around and between calls."""
_FORCED: Final = re.compile(r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*')
_FIRST_KEY: Final = re.compile(r'[\[\s]*\{\s*"([^"]*)"')
_CALL_KEYS: Final = frozenset({"name", "arguments", "parameters", "function", "type", "id", "tool_calls"})
_OPENERS: Final = ("<tool_call", "```json", "```tool_call", "```\n", "{", "[")

Reader = Callable[[str], list[Body] | None]
"""Reads the calls out of a whole text; None if there are none."""


def call(name: str, arguments: str) -> Body:
    """A tool call in OpenAI's form, with an id of its own."""
    function: Body = {"name": name, "arguments": arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


def calls_in(text: str, names: Iterable[str]) -> list[Body] | None:
    """The calls that a text consists of; None if there is anything else in it, or a call of a tool not in `names`."""
    known, calls = frozenset(names), list[Body]()
    at = _after(text, 0)
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        for item in value if isinstance(value, list) else [value]:
            one = _call_of(item, known)
            if one is None:
                return None
            calls.append(one)
        at = _after(text, at)
    return calls or None


def forced_call(text: str) -> list[Body] | None:
    """The one call of a text that was held to the form `{"name": …, "arguments": …}`.

    Cut off by the token limit, it has arguments that are cut off, as with OpenAI; cut off before them, it is no call.
    """
    match = _FORCED.match(text)
    if match is None:
        return None
    name: Json = json.loads(f'"{match[1]}"')
    rest = text[match.end() :]
    try:
        _, end = _DECODER.raw_decode(rest)
    except (ValueError, RecursionError):
        end = len(rest)
    return [call(str(name), rest[:end] or "{}")]


def may_be_call(text: str) -> bool:
    """Whether a text that goes on may turn out to be calls."""
    begun = text.lstrip()
    if not any(begun.startswith(opener) or opener.startswith(begun) for opener in _OPENERS):
        return False
    match = _FIRST_KEY.match(begun, _after(begun, 0))
    return match is None or match[1] in _CALL_KEYS


def with_calls(answer: Body, read: Reader) -> Body:
    """The answer with the calls in its texts as `tool_calls`."""
    return with_choices(answer, [_called(choice, read) for choice in choices_of(answer)])


class CallsInStream:
    """The same in a stream: text that may be a call is held back until it is certain.

    With `forced` everything is held back: it can only be a call.
    """

    def __init__(self, read: Reader, *, forced: bool) -> None:
        self._read = read
        self._forced = forced
        self._held: dict[int, str] = {}
        self._plain: set[int] = set()

    def chunk(self, chunk: Body) -> list[Body]:
        """The chunk, or nothing while its text is held back."""
        choices = choices_of(chunk)
        if len(choices) != 1:
            return [chunk]
        choice = choices[0]
        index = index_of(choice)
        if index in self._plain:
            return [chunk]
        delta = inner(choice, "delta")
        if "tool_calls" in delta:
            return self._read_by_the_server(chunk, choice, index)
        text = delta.get("content")
        if isinstance(text, str):
            self._held[index] = self._held.get(index, "") + text
        if choice.get("finish_reason") is not None:
            return self._finished(chunk, choice, index)
        if not isinstance(text, str):
            return [chunk]
        return self._went_on(chunk, choice, index)

    def end(self) -> list[Body]:
        """Nothing."""
        return []

    def _read_by_the_server(self, chunk: Body, choice: Body, index: int) -> list[Body]:
        self._plain.add(index)
        held = self._held.pop(index, "")
        return [_with_delta(chunk, choice, {"content": held}), chunk] if held else [chunk]

    def _went_on(self, chunk: Body, choice: Body, index: int) -> list[Body]:
        held = self._held[index]
        if self._forced or may_be_call(held):
            return []
        self._plain.add(index)
        del self._held[index]
        return [_with_delta(chunk, choice, {**inner(choice, "delta"), "content": held})]

    def _finished(self, chunk: Body, choice: Body, index: int) -> list[Body]:
        held = self._held.pop(index, "")
        calls = self._read(held) if held else None
        last = _with_delta(chunk, choice, {})
        going_on = {**choice, "finish_reason": None, "logprobs": None}
        head = {key: value for key, value in chunk.items() if key not in ("usage", "timings")}
        if calls is None:
            return [_with_delta(head, going_on, {"content": held}), last] if held else [last]
        delta: Body = {"tool_calls": [{"index": place, **one} for place, one in enumerate(calls)]}
        ended = {**choice, "finish_reason": _reason(choice)}
        return [_with_delta(head, going_on, delta), _with_delta(chunk, ended, {})]


def _called(choice: Body, read: Reader) -> Body:
    message = inner(choice, "message")
    text = message.get("content")
    if message.get("tool_calls") or not isinstance(text, str):
        return choice
    calls = read(text)
    if calls is None:
        return choice
    called: Body = {**message, "content": None, "tool_calls": list[Json](calls)}
    return {**choice, "message": called, "finish_reason": _reason(choice)}


def _reason(choice: Body) -> str:
    return "length" if choice.get("finish_reason") == "length" else "tool_calls"


def _with_delta(chunk: Body, choice: Body, delta: Body) -> Body:
    return with_choices(chunk, [{**choice, "delta": delta}])


def _call_of(value: Json, names: frozenset[str]) -> Body | None:
    if not isinstance(value, dict):
        return None
    function = value.get("function")
    described = function if isinstance(function, dict) else value
    name = described.get("name")
    arguments = described.get("arguments", described.get("parameters", {}))
    if not isinstance(name, str) or name not in names:
        return None
    if isinstance(arguments, dict):
        return call(name, json.dumps(arguments, ensure_ascii=False))
    return call(name, arguments) if isinstance(arguments, str) else None


def _after(text: str, at: int) -> int:
    match = _AROUND.match(text, at)
    return match.end() if match else at
