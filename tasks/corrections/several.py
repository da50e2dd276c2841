"""Several answers to one request: llama.cpp counts the tokens of the first alone, in streams of each apart.

Its streams carry the counts of every choice, so a whole answer is asked for as a stream too and put together here.
"""

from infra.errors import EngineFailed
from tasks.corrections.events import chunks_in
from tasks.corrections.gather import Gathered
from tasks.corrections.types import Body, Traits, choices_of, inner, number
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
    tally, gathered = Tally(body), Gathered()
    for chunk in chunks_in(stream):
        tally.chunk(chunk)
        gathered.add(chunk)
    if not gathered.begun:
        raise EngineFailed("the engine ended its answer before it began")
    return gathered.answer("chat.completion" if "messages" in body else "text_completion", usage_object(tally.usage))


def _prompts(body: Body) -> int:
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
