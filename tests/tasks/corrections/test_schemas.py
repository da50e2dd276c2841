"""Schemas that refer to their own root."""

import json

from infra.types import Json
from tasks.corrections.schemas import rooted
from tasks.corrections.table import corrections_for
from tasks.corrections.types import CHAT, Body, Traits
from tests.tasks.corrections.live import Live, message, user

LIST: Json = {
    "type": "object",
    "properties": {"v": {"enum": [1, 2]}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
    "required": ["v", "next"],
    "additionalProperties": False,
}


def asked(schema: Json) -> Body:
    form: Body = {"name": "list", "strict": True, "schema": schema}
    answer: Body = {"type": "json_schema", "json_schema": form}
    return {"messages": user("hi"), "max_tokens": 900, "temperature": 0, "seed": 1, "response_format": answer}


def test_a_schema_may_refer_to_its_root(tiny: Live) -> None:
    status, refusal = tiny.raw("/v1/chat/completions", asked(LIST))
    assert status == 400, "the server follows it now: drop ours"
    assert b"$ref" in refusal
    content = str(message(tiny.mended(CHAT, asked(LIST)))["content"])
    assert content.lstrip().startswith("{")
    assert '"v"' in content


def test_other_schemas_stay() -> None:
    assert corrections_for(CHAT, asked({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}), Traits()) == ()
    assert corrections_for(CHAT, {"response_format": {"type": "text"}}, Traits()) == ()


def test_a_schema_is_obeyed_by_a_random_model(tiny: Live) -> None:
    schema: Body = {"type": "object", "properties": {"v": {"enum": ["a", "b"]}}, "required": ["v"]}
    answer = tiny.mended(CHAT, asked({**schema, "additionalProperties": False}))
    assert json.loads(str(message(answer)["content"]))["v"] in ("a", "b")


def test_references_move_with_their_schema() -> None:
    before: Json = {"$ref": "#", "a": [{"$ref": "#/$defs/x"}, {"$ref": "http://x/y"}], "b": {"$ref": 5}}
    assert rooted(before, "#/$defs/t") == {
        "$ref": "#/$defs/t",
        "a": [{"$ref": "#/$defs/t/$defs/x"}, {"$ref": "http://x/y"}],
        "b": {"$ref": 5},
    }
