"""How long an answer is, and whether the prompt stands before it."""

from typing import Final

from tasks.corrections.logprobs import prompt_text
from tasks.corrections.types import Body, Traits, choices_of, index_of, inner, number, with_choices
from tasks.corrections.usage import usage_object, usage_of
from tasks.types import Usage

DEFAULT_MAX_TOKENS: Final = 16
"""OpenAI's limit of a completion that names none."""


def limit_applies(body: Body, _traits: Traits) -> bool:
    """A completion without a limit."""
    return body.get("max_tokens") is None


def limit_request(body: Body, _traits: Traits) -> Body:
    """With OpenAI's limit."""
    return {**body, "max_tokens": DEFAULT_MAX_TOKENS}


def nothing_applies(body: Body, _traits: Traits) -> bool:
    """The limit is 0 tokens; `max_completion_tokens` goes first."""
    newer = body.get("max_completion_tokens")
    return (body.get("max_tokens") if newer is None else newer) == 0


def nothing_response(answer: Body, _body: Body) -> Body:
    """The answer emptied of the one token that llama.cpp makes at least."""
    emptied = with_choices(answer, [_emptied(choice) for choice in choices_of(answer)])
    usage = inner(answer, "usage")
    if usage:
        counted = usage_of(usage)
        emptied["usage"] = usage_object(Usage(counted.prompt_tokens, 0, counted.cached_tokens))
    return emptied


class Nothing:
    """The same in a stream."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def chunk(self, chunk: Body) -> list[Body]:
        """The chunk without its text."""
        return [nothing_response(chunk, self._body)]

    def end(self) -> list[Body]:
        """Nothing."""
        return []


def _emptied(choice: Body) -> Body:
    emptied = {**choice, "logprobs": None}
    if "text" in choice:
        emptied["text"] = ""
    if "message" in choice:
        emptied["message"] = {"role": "assistant", "content": ""} | (
            {"refusal": None} if "refusal" in inner(choice, "message") else {}
        )
    if "delta" in choice:
        emptied["delta"] = {"role": "assistant", "content": ""} if "role" in inner(choice, "delta") else {}
    if choice.get("finish_reason") is not None:
        emptied["finish_reason"] = "length"
    return emptied


def echo_applies(body: Body, _traits: Traits) -> bool:
    """The client wants the prompt before the answer."""
    return body.get("echo") is True


def echo_response(answer: Body, body: Body) -> Body:
    """The prompt before the text of every choice."""
    return Echo(body).chunk(answer)[0]


class Echo:
    """The same in a stream: before the first piece of every choice."""

    def __init__(self, body: Body) -> None:
        self._prompt = body.get("prompt")
        self._answers = max(1, number(body.get("n")))
        self._begun: set[int] = set()

    def chunk(self, chunk: Body) -> list[Body]:
        """The chunk, with the prompt where a choice begins."""
        return [with_choices(chunk, [self._choice(choice) for choice in choices_of(chunk)])]

    def end(self) -> list[Body]:
        """Nothing."""
        return []

    def _choice(self, choice: Body) -> Body:
        index = index_of(choice)
        if index in self._begun:
            return choice
        self._begun.add(index)
        return {**choice, "text": f"{prompt_text(self._prompt, index // self._answers)}{choice.get('text') or ''}"}
