"""Asks a model to sum up a conversation, and gives OpenAI's compaction with the summary in it, not yet sealed."""

import re
from typing import Final

import orjson

from infra.clock import wall
from infra.errors import EngineFailed, InvalidRequest, UpstreamRefused
from infra.types import Json
from tasks.corrections.types import CHAT, Body, choices_of, inner, number, object_of
from tasks.generate import generate
from tasks.responses.answer import COMPACTION, RESPONSE, new_id, usage_of_response
from tasks.responses.refusals import in_response_words
from tasks.types import TaskCall, TaskResult
from workers.live import Engine

SUMMARY_TYPE: Final = "application/vnd.coderai.compaction+json"
"""An answer whose last item has its `summary` in the clear: it is sealed before it leaves for its client."""
JSON_TYPE: Final = "application/json"
_MOST_TOKENS: Final = 8192
_SHARE: Final = 8
"""A summary has at most this part of the context: the conversation is to go on after it."""
_FLOOR_TOKENS: Final = 512
"""Besides, it is no longer than what it sums up; of short conversations, than this: some models think before."""
_BYTES_A_TOKEN: Final = 4
_LEAST_TOKENS: Final = 128
"""A summary that ends sooner for want of room has lost what it was for."""
_SENTENCE: Final = re.compile(r"[^\n]+?(?:[.!?][ \n]+|\n+)")
"""A sentence or a line, with the space after it."""


async def compact(call: TaskCall) -> TaskResult:
    """Send the chat `inputs["request"]`, which asks for a summary, to the engine; `inputs["kept"]` are the items that
    stand before it in the answer.

    Raises:
        EngineFailed: as `generate`; also an answer without a choice.
        InvalidRequest: as `generate`; also a conversation that leaves the model no room for a summary, or of which it
            has nothing to say.
        UpstreamRefused: as `generate`.
    """
    request, kept, engine = call.inputs["request"], call.inputs["kept"], call.leased()
    assert isinstance(request, dict)
    assert isinstance(kept, list)
    most = _most_tokens(engine, request)
    limit: Body = {} if most is None else {"max_completion_tokens": most}
    try:
        result = await generate(call._replace(inputs={"path": CHAT, "request": {**request, **limit}}))
    except UpstreamRefused as error:
        raise in_response_words(error) from error
    assert isinstance(result.value, bytes)
    answer = object_of(result.value)
    told = inner(answer, "usage")
    choice = next(iter(choices_of(answer)), None)
    if choice is None:
        raise EngineFailed(f"{engine.id} answered without a choice: send the request again, or name another model")
    said = inner(choice, "message").get("content")
    summary = said.strip() if isinstance(said, str) else ""
    if choice.get("finish_reason") == "length":
        written = told.get("completion_tokens")
        if isinstance(written, int):  # some services count nothing
            _require_room(written, most)
        summary = _said_once(summary)
    if not summary:
        raise InvalidRequest(
            "the model wrote no summary: leave out 'instructions' that keep it from that, or name another model",
            param="input",
        )
    item: Body = {"type": "compaction", "id": new_id(COMPACTION), "summary": summary}
    made: dict[str, Json] = {
        "id": new_id(RESPONSE),
        "object": "response.compaction",
        "created_at": int(wall()),
        "output": [*kept, item],
        "usage": usage_of_response(told),
    }
    return TaskResult(orjson.dumps(made), result.usage, SUMMARY_TYPE)


def _most_tokens(engine: Engine, request: Body) -> int | None:
    """How long a summary may be; None for a far service whose model's context nobody has told: it has its own limit."""
    context = number(inner(engine.props, "default_generation_settings").get("n_ctx")) or engine.entry.context_tokens
    if context is None:
        return None
    most = max(1, min(_MOST_TOKENS, context // _SHARE))
    told = len(orjson.dumps(request.get("messages"))) // _BYTES_A_TOKEN
    return min(most, max(_FLOOR_TOKENS, told)) if engine.local else most


def _said_once(summary: str) -> str:
    """A summary that was cut off, without what it says twice: a small model that finds no end repeats itself."""
    return "".join(dict.fromkeys(_SENTENCE.findall(summary + "\n"))).strip()


def _require_room(written: int, most: int | None) -> None:
    """Raises InvalidRequest where a summary was cut off by the context's end rather than by its own limit, too soon."""
    if most is not None and written < min(most, _LEAST_TOKENS):
        raise InvalidRequest(
            f"the conversation fills the model's context, which leaves {written} tokens for a summary: compact it "
            "earlier, or with a model that has a longer context",
            param="input",
            code="context_length_exceeded",
        )
