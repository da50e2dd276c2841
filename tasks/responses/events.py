"""The chunks of a chat's stream as the events of a response's stream.

Output items come one after the other, each opened, filled and closed before the next. Every event is numbered.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import orjson

from infra.errors import EngineFailed
from infra.types import ItemId, Json
from tasks.corrections.types import Body, choices_of, index_of, inner, objects
from tasks.responses import answer

Kind = Literal["text", "refusal", "reasoning", "call"]
TERMINAL: Final = {"completed": "response.completed", "incomplete": "response.incomplete"}

NAMES: Final[dict[Kind, str]] = {
    "text": "response.output_text",
    "refusal": "response.refusal",
    "reasoning": "response.reasoning_text",
    "call": "response.function_call_arguments",
}
"""What the events of each kind begin with."""
WHOLE: Final[dict[Kind, str]] = {"text": "text", "refusal": "refusal", "reasoning": "text", "call": "arguments"}
"""The field of a `done` event that has the whole of it."""


def encoded(event: Body) -> bytes:
    """An event as it goes over the wire."""
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


_PARTS: Final = frozenset({"text", "refusal"})
"""What one message may have beside each other."""


@dataclass(slots=True)
class _Open:
    """The output item that is being made: of a message one part at a time, `parts` being those before it."""

    kind: Kind
    id: ItemId
    call: Body = field(default_factory=dict)
    index: int = 0
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    parts: list[Body] = field(default_factory=list)

    @property
    def whole(self) -> str:
        return "".join(self.pieces)

    def part(self) -> Body:
        """The part of a message, or of a thought, as far as it has come."""
        if self.kind == "refusal":
            return answer.refusal_part(self.whole)
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.whole}
        return answer.text_part(self.whole, self.logprobs)

    def item(self, status: str) -> Body:
        """The item as far as it has come."""
        if self.kind == "call":
            return answer.call_item(self.id, self.call, self.whole, status)
        if self.kind == "reasoning":
            return answer.reasoning_item(self.id, self.whole, status)
        content = [] if status == "in_progress" else [*self.parts, self.part()]
        return answer.message_item(self.id, content, status)


class Events:
    """One response's stream. `response` is the object that was begun."""

    def __init__(self, response: Body) -> None:
        self._response = response
        self._output: list[Body] = []
        self._open: _Open | None = None
        self._calls = 0
        self._finish_reason: Json = None
        self._usage: Body = {}
        self._number = 0

    def begin(self) -> bytes:
        """What stands before everything."""
        return self._event("response.created", response=self._response) + self._event(
            "response.in_progress", response=self._response
        )

    def chunk(self, chunk: Body) -> bytes:
        """What a chunk of the chat adds.

        Raises:
            EngineFailed: the chunk continues a call that another one had followed.
        """
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        said = b""
        for choice in choices_of(chunk):
            said += self._delta(inner(choice, "delta"), inner(choice, "logprobs"))
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return said

    def finish(self) -> bytes:
        """What closes the last item; there is always one, be it empty."""
        said = b"" if self._output or self._open is not None else self._start(_Open("text", _new("text")))
        return said + self._close(answer.status_of(self._finish_reason))

    def end(self) -> tuple[Body, bytes]:
        """The response, and the event that ends its stream."""
        response = answer.ended(self._response, self._output, self._finish_reason, self._usage)
        return response, self._event(TERMINAL[str(response["status"])], response=response)

    def _delta(self, delta: Body, logprobs: Body) -> bytes:
        said = self._piece("reasoning", delta.get("reasoning_content"), [])
        said += self._piece("text", delta.get("content"), objects(logprobs.get("content")))
        said += self._piece("refusal", delta.get("refusal"), [])
        for call in objects(delta.get("tool_calls")):
            said += self._call(call)
        return said

    def _piece(self, kind: Kind, piece: Json, logprobs: list[Body]) -> bytes:
        if not isinstance(piece, str) or not piece:
            return b""
        said = b""
        if self._open is None or self._open.kind != kind:
            said = self._turn_to(kind)
        assert self._open is not None
        self._open.logprobs += logprobs
        return said + self._add(piece, logprobs)

    def _turn_to(self, kind: Kind) -> bytes:
        """Begin an item of that kind, or another part of the message that is open."""
        message = self._open
        if message is None or message.kind not in _PARTS or kind not in _PARTS:
            return self._close("completed") + self._start(_Open(kind, _new(kind)))
        said = self._close_part()
        message.parts.append(message.part())
        message.kind, message.pieces, message.logprobs = kind, [], []
        return said + self._open_part()

    def _call(self, call: Body) -> bytes:
        index, now = index_of(call), self._open
        said = b""
        if now is None or now.kind != "call" or now.index != index:
            if index < self._calls:
                raise EngineFailed("the engine went back to a call that it had ended")
            self._calls = index + 1
            said = self._close("completed") + self._start(_Open("call", _new("call"), call | _named(call), index))
        arguments = inner(call, "function").get("arguments")
        return said + (self._add(arguments, []) if isinstance(arguments, str) and arguments else b"")

    def _start(self, item: _Open) -> bytes:
        self._open = item
        said = self._event("response.output_item.added", output_index=len(self._output), item=item.item("in_progress"))
        return said if item.kind == "call" else said + self._open_part()

    def _open_part(self) -> bytes:
        return self._at("response.content_part.added", part=self._now.part())

    def _add(self, piece: str, logprobs: list[Body]) -> bytes:
        now = self._now
        now.pieces.append(piece)
        more: Body = {"logprobs": list[Json](logprobs)} if now.kind == "text" else {}
        return self._at(f"{NAMES[now.kind]}.delta", delta=piece, **more)

    def _close_part(self) -> bytes:
        now = self._now
        more: Body = {"logprobs": now.logprobs} if now.kind == "text" else {}
        said = self._at(f"{NAMES[now.kind]}.done", **{WHOLE[now.kind]: now.whole}, **more)
        return said + self._at("response.content_part.done", part=now.part())

    def _close(self, status: str) -> bytes:
        """Close the open item, if there is one."""
        now = self._open
        if now is None:
            return b""
        item = now.item(status)
        if now.kind == "call":
            done = f"{NAMES['call']}.done"
            said = self._at(done, name=item["name"], arguments=now.whole)
        else:
            said = self._close_part()
        said += self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)
        self._open = None
        return said

    @property
    def _now(self) -> _Open:
        assert self._open is not None
        return self._open

    def _at(self, kind: str, **fields: Json) -> bytes:
        """An event of the item, or of the part of it, that is open."""
        now = self._now
        place: Body = {"item_id": now.id, "output_index": len(self._output)}
        if now.kind != "call":
            place["content_index"] = len(now.parts)
        return self._event(kind, **place, **fields)

    def _event(self, kind: str, **fields: Json) -> bytes:
        numbered = encoded({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return numbered


def _new(kind: Kind) -> ItemId:
    return ItemId(answer.new_id({"call": answer.CALL, "reasoning": answer.REASONING}.get(kind, answer.MESSAGE)))


def _named(call: Body) -> Body:
    """The id by which the call's output will be known: the engine's, or one of ours."""
    return {"id": str(call.get("id") or answer.new_id("call"))}
