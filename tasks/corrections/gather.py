"""The whole answer that the chunks of a stream are pieces of."""

from typing import Final

from infra.types import Json
from tasks.corrections.types import Body, choices_of, index_of, inner

_OF_CHUNKS: Final = frozenset({"usage", "timings", "choices", "object", "obfuscation"})
"""Fields that a chunk has for itself: the answer has others in their place."""
_WHOLE: Final = frozenset({"id", "type", "name", "role", "finish_reason"})
"""Texts that are never cut into pieces; an empty one says nothing."""
_MESSAGE: Final[Body] = {"role": "assistant", "content": None, "refusal": None}
_LOGPROBS: Final[Body] = {"content": None, "refusal": None}


class Gathered:
    """The choices of a chat or a completion, as far as they have come."""

    def __init__(self) -> None:
        self.usage: Body = {}
        """What the stream says of its tokens; empty if it has not."""
        self.finished: set[int] = set()
        """The choices that have their end."""
        self._head: Body = {}
        self._choices: dict[int, _Object] = {}

    def add(self, chunk: Body) -> None:
        """Take in one more chunk."""
        self._head = {name: value for name, value in chunk.items() if name not in _OF_CHUNKS} | self._head
        self.usage = inner(chunk, "usage") or self.usage
        for choice in choices_of(chunk):
            index = index_of(choice)
            self._choices.setdefault(index, _Object()).add(choice)
            if choice.get("finish_reason"):
                self.finished.add(index)

    @property
    def begun(self) -> int:
        """How many choices have something."""
        return len(self._choices)

    def answer(self, kind: str, usage: Body) -> Body:
        """The answer so far; `kind` is its `object`."""
        choices: list[Json] = [_choice(index, self._choices[index].whole()) for index in sorted(self._choices)]
        used: Body = {"usage": usage} if usage else {}
        return {**self._head, "object": kind, "choices": choices, **used}


class _Object:
    """An object of which pieces come: texts, lists and objects in it grow; of anything else the last word holds."""

    __slots__ = ("_lists", "_objects", "_plain", "_texts")

    def __init__(self) -> None:
        self._plain: Body = {}
        self._texts: dict[str, list[str]] = {}
        self._objects: dict[str, _Object] = {}
        self._lists: dict[str, _List] = {}

    def add(self, piece: Body) -> None:
        for name, value in piece.items():
            if isinstance(value, str) and name not in _WHOLE:
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, dict):
                self._objects.setdefault(name, _Object()).add(value)
            elif isinstance(value, list):
                self._lists.setdefault(name, _List()).add(value)
            elif value not in (None, "") or self._plain.get(name) is None:
                self._plain[name] = value

    def whole(self) -> Body:
        whole = dict(self._plain)
        whole.update((name, "".join(pieces)) for name, pieces in self._texts.items())
        whole.update((name, grown.whole()) for name, grown in self._objects.items())
        whole.update((name, grown.whole()) for name, grown in self._lists.items())
        return whole


class _List:
    """A list of which pieces come: more items, or more of the item that a number `index` names."""

    __slots__ = ("_items", "_numbered")

    def __init__(self) -> None:
        self._items: list[Json] = []
        self._numbered: dict[int, _Object] = {}

    def add(self, pieces: list[Json]) -> None:
        for piece in pieces:
            if isinstance(piece, dict) and "index" in piece:
                kept = {name: value for name, value in piece.items() if name != "index"}
                self._numbered.setdefault(index_of(piece), _Object()).add(kept)
            else:
                self._items.append(piece)

    def whole(self) -> list[Json]:
        return [*self._items, *(self._numbered[index].whole() for index in sorted(self._numbered))]


def _choice(index: int, grown: Body) -> Body:
    choice: Body = {"index": index, "finish_reason": None, "logprobs": None} | grown
    if "delta" in choice:
        choice["message"] = _MESSAGE | inner(choice, "delta")
        del choice["delta"]
    if isinstance(choice["logprobs"], dict):
        choice["logprobs"] = _LOGPROBS | choice["logprobs"]
    return choice
