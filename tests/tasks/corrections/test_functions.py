"""The older functions."""

import json
from typing import Final

from tasks.corrections.table import mend
from tasks.corrections.types import CHAT, Body, Traits, inner
from tests.tasks.corrections.live import Live, first, message, user

LOOK: Final[Body] = {
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"at": {"enum": ["a", "b"]}},
        "required": ["at"],
        "additionalProperties": False,
    },
}
ASKED: Final[Body] = {
    "messages": user("hi"),
    "functions": [LOOK],
    "function_call": {"name": "look"},
    "temperature": 0,
    "max_tokens": 900,
    "seed": 1,
}


def test_a_named_function_is_called(tiny: Live) -> None:
    assert "function_call" not in message(tiny.bare(CHAT, ASKED))
    answer = tiny.mended(CHAT, ASKED)
    assert first(answer)["finish_reason"] == "function_call"
    assert "tool_calls" not in message(answer)
    called = inner(message(answer), "function_call")
    assert called["name"] == "look"
    assert json.loads(str(called["arguments"]))["at"] in ("a", "b")


def test_a_named_function_is_streamed(tiny: Live) -> None:
    parts = tiny.mended_stream(CHAT, ASKED)
    called = [inner(inner(first(part), "delta"), "function_call") for part in parts]
    assert [one["name"] for one in called if one] == ["look"]
    assert first(parts[-1])["finish_reason"] == "function_call"


def test_the_choice_is_kept() -> None:
    for choice, kept in (("none", ["functions", "tools_none"]), ("auto", ["functions", "tools_auto"])):
        mending = mend(CHAT, {**ASKED, "function_call": choice}, Traits())
        assert mending is not None
        assert [correction.name for correction, _ in mending.steps] == kept
        assert mending.body.keys() & {"functions", "function_call", "tool_choice"} == set()
