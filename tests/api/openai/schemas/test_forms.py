"""Limits on JSON schemas."""

import time

import pytest

from api.openai.schemas.forms import MAX_DEPTH, MAX_NODES, check_form
from infra.errors import InvalidRequest
from infra.types import Json

NODE: Json = {"$ref": "#/$defs/node"}


def nested(levels: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def pair(last: Json) -> Json:
    return {"type": "array", "prefixItems": [NODE, last]}


def union(*branches: Json) -> Json:
    return {"$defs": {"node": {"anyOf": list(branches)}}, "$ref": "#/$defs/node"}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"foo": "bar"},
        nested(MAX_DEPTH - 1),
        {"enum": [str(value) for value in range(1000)]},
        {"type": "string", "maxLength": 1000},
        {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
        union({"type": "object", "properties": {"left": NODE, "right": NODE}}, {"type": "number"}),
        {
            "anyOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
            "$defs": {
                "cat": {"properties": {"name": {"type": "string"}, "owner": {"$ref": "#/$defs/owner"}}},
                "dog": {"properties": {"name": {"type": "string"}, "owner": {"$ref": "#/$defs/owner"}}},
                "owner": {"properties": {"name": {"type": "string"}}},
            },
        },
        union(
            {"type": "object", "properties": {"op": {"const": "add"}, "left": NODE}},
            {"type": "object", "properties": {"op": {"const": "mul"}, "left": NODE}},
        ),
    ],
)
def test_schemas_in_use_pass(schema: Json) -> None:
    check_form(schema, "p")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (nested(MAX_DEPTH + 1), "nested deeper"),
        (nested(100_000), "nested deeper"),
        ([0] * (MAX_NODES + 1), "parts"),
        ({"enum": [str(value) for value in range(1001)]}, "1001 values"),
        ({"properties": {str(name): {} for name in range(5001)}}, "5001 properties"),
        ({"type": "string", "maxLength": 100_001}, "maxLength"),
        (union(pair({"const": "x"}), pair({"const": "y"})), "begin alike"),
        (
            union(
                {"type": "object", "properties": {"a": NODE, "b": {"const": 1}}},
                {"type": "object", "properties": {"a": NODE, "b": {"const": 2}}},
            ),
            "begin alike",
        ),
    ],
)
def test_hostile_schemas_are_refused(schema: Json, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told) as caught:
        check_form(schema, "tools.0.function.parameters")
    assert caught.value.param == "tools.0.function.parameters"


def test_a_reference_in_a_circle_ends() -> None:
    check_form({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}, "p")


def test_an_intertwined_schema_is_refused_soon() -> None:
    union_of_all: dict[str, Json] = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in range(60)]}
    definitions: dict[str, Json] = {str(name): {"properties": {"a": union_of_all}} for name in range(60)}
    tangled: Json = {**union_of_all, "$defs": definitions}
    started_s = time.perf_counter()
    with pytest.raises(InvalidRequest):
        check_form(tangled, "p")
    assert time.perf_counter() - started_s < 2
