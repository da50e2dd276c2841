"""Conversations made shorter: the chat that asks a model for a summary, and the item that holds one.

A summary is the client's to keep: it travels sealed for the key that asked for it, and is opened when it comes back,
into a message that the model sees. It is no secret from that key: the model may repeat it, and `/v1/plan` shows it.
"""

import asyncio
from typing import Final

import orjson

from api.openai.responses import compact_schema, schema
from api.openai.responses.input_schema import COMPACTION
from api.openai.responses.items import kept_items
from api.openai.responses.mapping import chat_of, items_of
from api.openai.schemas import chat as chat_schema
from api.seals import Seals
from infra.errors import InvalidRequest
from infra.types import Json, KeyName
from tasks.responses.compact import JSON_TYPE, SUMMARY_TYPE
from tasks.types import TaskResult

Body = dict[str, Json]

ASKS: Final = (
    "Write a summary of the conversation above: what was asked, found and decided, every fact, name, number and file, "
    "and what is still to be done."
)
"""What the model is asked for, after the conversation. Short on purpose: of more words small models make less."""
TELLS: Final = "Summary of the conversation so far, in place of what was said before:\n\n"
"""What stands before a summary when a model sees it."""
_READS: Final = ("model", "input", "instructions")
_NOT_SENT: Final = (compact_schema.KNOWN | schema.KNOWN | chat_schema.KNOWN).difference(_READS)
"""What we know besides: it is not about a summary. What we do not know is for a far service."""
_WORDS: Final[Body] = {
    "temperature": 0,
    "enable_thinking": False,
    "dry_multiplier": 0.8,
    "dry_base": 1.75,
    "dry_allowed_length": 24,
    "dry_penalty_last_n": 128,
    "dry_sequence_breakers": ["<never>"],
}
"""How a model here is to choose its words: the likeliest ones, but not the same 24 tokens again that it has just said.

That ends the loops of small models; names, numbers and paths are shorter, or were said long before.
"""


def summary_chat_of(body: Body, *, far: bool) -> Body:
    """The chat that is asked for a summary; `body` is checked, its input the whole conversation. `far`: of a far
    service, whose models are left to choose their words as they do.

    Raises:
        InvalidRequest: the output of a call that nobody made.
    """
    asked = {name: value for name, value in body.items() if name not in _NOT_SENT}
    wish: Body = {"type": "message", "role": "user", "content": ASKS}
    chat = chat_of({**asked, "input": [*items_of(body.get("input")), wish]})
    return chat if far else chat | _WORDS


def kept_messages(body: Body) -> list[Json]:
    """What the user has said, which stays as it is."""
    said: list[Json] = [item for item in items_of(body.get("input")) if item.get("role") == "user"]
    return list[Json](kept_items(said))


def has_compactions(given: Json) -> bool:
    """Whether there is one in an input, which need not be checked."""
    return isinstance(given, list) and any(isinstance(item, dict) and item.get("type") == COMPACTION for item in given)


def opened(seals: Seals, owner: KeyName, items: list[Body], *, stored: bool = False) -> list[Body]:
    """Checked items as a model may see them: each compaction is a message of the system. Blocks.

    `stored`: they are of an earlier response, no part of the request itself.

    Raises:
        InvalidRequest: a compaction that was not made here for this key, or is not as it was.
    """
    return [
        _opened(seals, owner, item, None if stored else place) if item.get("type") == COMPACTION else item
        for place, item in enumerate(items)
    ]


async def sealed(seals: Seals, owner: KeyName, result: TaskResult) -> TaskResult:
    """The result of a run's last step as its client gets it: a summary that it holds is sealed for its owner."""
    if result.media_type != SUMMARY_TYPE:
        return result
    assert isinstance(result.value, bytes)
    value = await asyncio.to_thread(_sealed, seals, owner, result.value)
    return result._replace(value=value, media_type=JSON_TYPE)


def _sealed(seals: Seals, owner: KeyName, answer: bytes) -> bytes:
    made = orjson.loads(answer)
    item = made["output"][-1]
    item["encrypted_content"] = seals.seal(item.pop("summary"), owner)
    return orjson.dumps(made)


def _opened(seals: Seals, owner: KeyName, item: Body, place: int | None) -> Body:
    content = item["encrypted_content"]
    summary = seals.open(content, owner) if isinstance(content, str) else None
    if summary is not None:
        return {"type": "message", "role": "system", "content": TELLS + summary}
    if place is None:
        raise InvalidRequest(
            "this conversation has a compaction that cannot be opened any more: give the conversation in 'input'",
            param="previous_response_id",
        )
    raise InvalidRequest(
        "this compaction was not made here for your key, or was changed since: give it as /v1/responses/compact "
        "answered it, or leave it out",
        param=f"input.{place}.encrypted_content",
        code="invalid_encrypted_content",
    )
