"""The table of corrections, and what is done with it.

    mending = mend(path, body, traits)          # None for ordinary requests: forward the bytes as they came
    …send mending.body…
    answer  = mending.answer(raw)               # a whole answer, or
    mender  = mending.stream()                  # a stream: mender.feed(piece) …, mender.finish(), mender.usage

Requests go through the corrections in the table's order, answers in the reverse order, so each correction sees the
answer to the very request it has changed.
"""

from dataclasses import dataclass
from typing import Final

import orjson

from tasks.corrections import functions, lengths, logprobs, messages, schemas, several, tools, vectors
from tasks.corrections.events import HiddenUsage, MendedEvents, StreamMender
from tasks.corrections.types import CHAT, COMPLETIONS, EMBEDDINGS, Body, Correction, Traits, inner, object_of

_CHAT: Final = frozenset({CHAT})
_TEXT: Final = frozenset({COMPLETIONS})
_BOTH: Final = _CHAT | _TEXT

TABLE: Final[tuple[Correction, ...]] = (
    Correction(
        name="messages",
        why="400 for an assistant's message without content and for refusal parts; 500 for tool arguments that are no "
        "JSON; function messages are dropped by templates",
        paths=_CHAT,
        fields=frozenset({"messages"}),
        applies=messages.applies,
        request=messages.request,
    ),
    Correction(
        name="thinking",
        why="enable_thinking and reasoning_effort 'none' outside chat_template_kwargs are ignored",
        paths=_CHAT,
        fields=frozenset({"enable_thinking", "reasoning_effort"}),
        applies=messages.thinking_applies,
        request=messages.thinking_request,
    ),
    Correction(
        name="functions",
        why="functions and function_call are ignored",
        paths=_CHAT,
        fields=frozenset({"functions"}),
        applies=functions.applies,
        request=functions.request,
        response=functions.response,
        stream=functions.OlderCalls,
    ),
    Correction(
        name="tools_none",
        why="tools are shown to the model even with tool_choice 'none', and it calls them in its text",
        paths=_CHAT,
        fields=frozenset({"tools", "tool_choice"}),
        applies=tools.none_applies,
        request=tools.none_request,
    ),
    Correction(
        name="tools_auto",
        why="calls that differ from the template's form stay text; templates without tools lose them",
        paths=_CHAT,
        fields=frozenset({"tools"}),
        applies=tools.auto_applies,
        request=tools.auto_request,
        response=tools.auto_response,
        stream=tools.auto_stream,
    ),
    Correction(
        name="tools_forced",
        why="tool_choice 'required' and allowed_tools do not hold the model to a call, a named tool is ignored",
        paths=_CHAT,
        fields=frozenset({"tools"}),
        applies=tools.forced_applies,
        request=tools.forced_request,
        response=tools.forced_response,
        stream=tools.forced_stream,
    ),
    Correction(
        name="schema_root",
        why="400 for a schema that refers to its own root by '#', the usual form of recursion in OpenAI's guide",
        paths=_CHAT,
        fields=frozenset({"response_format"}),
        applies=schemas.applies,
        request=schemas.request,
    ),
    Correction(
        name="limit",
        why="a completion without max_tokens runs to the end of the context, OpenAI's to 16 tokens",
        paths=_TEXT,
        fields=frozenset(),
        applies=lengths.limit_applies,
        request=lengths.limit_request,
    ),
    Correction(
        name="echo",
        why="echo is ignored (ggml-org/llama.cpp pull request 17935)",
        paths=_TEXT,
        fields=frozenset({"echo"}),
        applies=lengths.echo_applies,
        response=lengths.echo_response,
        stream=lengths.Echo,
    ),
    Correction(
        name="nothing",
        why="a limit of 0 tokens gives one token",
        paths=_BOTH,
        fields=frozenset({"max_tokens", "max_completion_tokens"}),
        applies=lengths.nothing_applies,
        response=lengths.nothing_response,
        stream=lengths.Nothing,
    ),
    Correction(
        name="logprobs",
        why="twenty alternatives where none was asked for, nothing at all for top_logprobs 0, no refusal",
        paths=_CHAT,
        fields=frozenset({"logprobs"}),
        applies=logprobs.chat_applies,
        request=logprobs.chat_request,
        response=logprobs.chat_response,
        stream=logprobs.ChatLogprobs,
    ),
    Correction(
        name="text_logprobs",
        why="the chat's form instead of four lists (ggml-org/llama.cpp pull request 15189); nothing for logprobs 0",
        paths=_TEXT,
        fields=frozenset({"logprobs"}),
        applies=logprobs.text_applies,
        request=logprobs.text_request,
        response=logprobs.text_response,
        stream=logprobs.TextLogprobs,
    ),
    Correction(
        name="several",
        why="usage counts the first answer only; a stream has several usage chunks, and begins with null for a list",
        paths=_BOTH,
        fields=frozenset({"n", "prompt"}),
        applies=several.applies,
        request=several.request,
        stream=several.Tally,
        gathers=True,
    ),
    Correction(
        name="dimensions",
        why="dimensions is ignored",
        paths=frozenset({EMBEDDINGS}),
        fields=frozenset({"dimensions"}),
        applies=vectors.applies,
        request=vectors.request,
        response=vectors.response,
    ),
)

_BY_PATH: Final = {
    path: tuple(correction for correction in TABLE if path in correction.paths)
    for path in (CHAT, COMPLETIONS, EMBEDDINGS)
}


@dataclass(frozen=True, slots=True)
class Mending:
    """A request that is sent in another form, and how its answer is put right."""

    body: Body
    steps: tuple[tuple[Correction, Body], ...]
    """The corrections, each with the request as it was before it."""
    hides_usage: bool = False

    @property
    def touches_answer(self) -> bool:
        """Whether the answer must be corrected; otherwise its bytes pass as they come."""
        return self.hides_usage or any(step.response or step.stream or step.gathers for step, _ in self.steps)

    def answer(self, raw: bytes) -> bytes:
        """The corrected answer; `raw` is the engine's whole one, a stream where one was asked for in its place.

        Raises:
            EngineFailed: the engine's answer cannot be read.
            InvalidRequest: the answer shows that the request cannot be met.
        """
        answer = self._whole(raw)
        for correction, before in reversed(self.steps):
            if correction.response is not None:
                answer = correction.response(answer, before)
        return complete(orjson.dumps(answer))

    def stream(self) -> StreamMender:
        """A new mender for the answer's stream."""
        if self.hides_usage:
            return HiddenUsage()
        menders = [correction.stream(before) for correction, before in reversed(self.steps) if correction.stream]
        return MendedEvents(menders, next((each for each in menders if isinstance(each, several.Tally)), None))

    def _whole(self, raw: bytes) -> Body:
        for correction, before in self.steps:
            if correction.gathers:
                return several.gather(raw, before)
        return object_of(raw)


def mend(path: str, body: Body, traits: Traits) -> Mending | None:
    """What must be done about a request to `path` (below `/v1`); None: nothing, neither to it nor to its answer."""
    if traits.service:
        return _with_usage(path, body)
    steps: list[tuple[Correction, Body]] = []
    for correction in _BY_PATH.get(path, ()):
        if correction.fields and correction.fields.isdisjoint(body):
            continue
        if correction.applies(body, traits):
            steps.append((correction, body))
            if correction.request is not None:
                body = correction.request(body, traits)
    return Mending(body, tuple(steps)) if steps else None


def corrections_for(path: str, body: Body, traits: Traits) -> tuple[Correction, ...]:
    """The corrections that a request needs; empty for ordinary ones."""
    mending = mend(path, body, traits)
    return () if mending is None else tuple(correction for correction, _ in mending.steps)


_MESSAGE: Final = b'"index":0,"message":{"role":"assistant",'
_HEAD_BYTES: Final = 120


def complete(raw: bytes) -> bytes:
    """A chat answer with the `logprobs` and `refusal` that OpenAI's schema demands and llama.cpp leaves out.

    Done on the bytes, at the head of the answer, where no text of the model can stand: an ordinary answer is not
    parsed for it. Answers of other forms come back as they are.
    """
    if raw.find(_MESSAGE, 0, _HEAD_BYTES) < 0:
        return raw
    logprobs = b"" if b'"logprobs":' in raw else b'"logprobs":null,'
    return raw.replace(_MESSAGE, b'"index":0,' + logprobs + b'"message":{"role":"assistant","refusal":null,', 1)


def _with_usage(path: str, body: Body) -> Mending | None:
    """A far service's stream tells its usage only if asked."""
    options = inner(body, "stream_options")
    if path == EMBEDDINGS or body.get("stream") is not True or options.get("include_usage") is True:
        return None
    return Mending({**body, "stream_options": {**options, "include_usage": True}}, (), hides_usage=True)
