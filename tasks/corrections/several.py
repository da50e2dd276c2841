"""Several answers to one request: llama.cpp counts the tokens of the first alone, in streams of each apart.

Its streams carry the counts of every choice, so a whole answer is asked for as a stream too and put together here.
"""

from infra.errors import EngineFailed
from infra.types import Json
from tasks.corrections.events import chunks_in
from tasks.corrections.types import Body, Traits, choices_of, index_of, inner, number, objects, with_choices
from tasks.corrections.usage import usage_object, usage_of_timings
from tasks.types import Usage


def applies(body: Body, _traits: Traits) -> bool:
    """More than one choice or more than one prompt."""
    return number(body.get("n")) > 1 or _prompts(body) > 1


def request(body: Body, _traits: Traits) -> Body:
    """The same, as a stream."""
    return body if body.get("stream") is True else {**body, "stream": True}


class Tally:
    """Takes the usage out of a stream with several choices and gives one for all at its end, if it is wanted."""

    def __init__(self, body: Body) -> None:
        self._answers = max(1, number(body.get("n")))
        self._wanted = inner(body, "stream_options").get("include_usage") is True
        self._prompt = self._completion = self._cached = 0
        self._last: Body = {}

    @property
    def usage(self) -> Usage:
        """All tokens so far; a prompt counts once, however many answers it got."""
        return Usage(self._prompt // self._answers, self._completion, self._cached // self._answers)

    def chunk(self, chunk: Body) -> list[Body]:
        """The chunk without its counts; nothing if there is nothing else in it."""
        self._last = chunk
        if "timings" in chunk:
            counted = usage_of_timings(inner(chunk, "timings"))
            self._prompt += counted.prompt_tokens
            self._completion += counted.completion_tokens
            self._cached += counted.cached_tokens
        kept = {key: value for key, value in chunk.items() if key not in ("usage", "timings")}
        return [kept] if choices_of(kept) else []

    def end(self) -> list[Body]:
        """One chunk with the usage of all."""
        if not self._wanted:
            return []
        kept = {key: value for key, value in self._last.items() if key not in ("usage", "timings")}
        return [{**kept, "choices": [], "usage": usage_object(self.usage)}]


def gather(stream: bytes, body: Body) -> Body:
    """The whole answer that a complete stream would have been.

    Raises:
        EngineFailed: the stream is broken, or empty.
    """
    tally, found, head = Tally(body), dict[int, Body](), dict[str, Json]()
    for chunk in chunks_in(stream):
        head = head or chunk
        tally.chunk(chunk)
        for choice in choices_of(chunk):
            index = index_of(choice)
            found[index] = _grown(found.get(index), choice)
    if not found:
        raise EngineFailed("the engine ended its answer before it began")
    kept = {key: value for key, value in head.items() if key not in ("usage", "timings", "choices", "object")}
    kind = "chat.completion" if "messages" in body else "text_completion"
    answer = {**kept, "object": kind, "usage": usage_object(tally.usage)}
    return with_choices(answer, [found[index] for index in sorted(found)])


def _grown(choice: Body | None, piece: Body) -> Body:
    """A choice after one more piece of it."""
    grown: Body = {"index": index_of(piece), "finish_reason": None, "logprobs": None, **(choice or {})}
    if piece.get("finish_reason") is not None:
        grown["finish_reason"] = piece["finish_reason"]
    if isinstance(logprobs := piece.get("logprobs"), dict):
        before = objects(inner(grown, "logprobs").get("content"))
        grown["logprobs"] = {"content": list[Json]([*before, *objects(logprobs.get("content"))])}
    if "delta" in piece:
        grown["message"] = _message(inner(grown, "message"), inner(piece, "delta"))
    else:
        grown["text"] = f"{grown.get('text') or ''}{piece.get('text') or ''}"
    return grown


def _message(message: Body, delta: Body) -> Body:
    grown: Body = message or {"role": "assistant", "content": None, "refusal": None}
    for key in ("content", "reasoning_content"):
        if isinstance(text := delta.get(key), str):
            grown = {**grown, key: f"{grown.get(key) or ''}{text}"}
    if calls := objects(delta.get("tool_calls")):
        grown = {**grown, "tool_calls": list[Json](_calls(objects(grown.get("tool_calls")), calls))}
    return grown


def _calls(calls: list[Body], pieces: list[Body]) -> list[Body]:
    """Tool calls after the next pieces of them."""
    grown = list(calls)
    for piece in pieces:
        place = number(piece.get("index"))
        if place >= len(grown):
            grown.append({"id": piece.get("id"), "type": "function", "function": dict(inner(piece, "function"))})
            continue
        function = dict(inner(grown[place], "function"))
        added = inner(piece, "function").get("arguments")
        function["arguments"] = f"{function.get('arguments') or ''}{added or ''}"
        grown[place] = {**grown[place], "function": function}
    return grown


def _prompts(body: Body) -> int:
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
