"""JSON schemas: references to the schema's own root, which llama.cpp does not follow."""

from infra.types import Json
from tasks.corrections.types import Body, Traits, inner


def rooted(schema: Json, place: str) -> Json:
    """The schema as it must be when it stands at `place` (a reference such as `#/$defs/x`) of a larger one."""
    if isinstance(schema, list):
        return [rooted(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: place + value[1:]
        if key == "$ref" and isinstance(value, str) and value[:1] == "#"
        else rooted(value, place)
        for key, value in schema.items()
    }


def applies(body: Body, _traits: Traits) -> bool:
    """An answer's schema that refers to itself as a whole."""
    return _refers_to_root(_schema(body))


def request(body: Body, _traits: Traits) -> Body:
    """The schema moved below `$defs`, where it can be referred to."""
    moved: Body = {"$ref": "#/$defs/answer", "$defs": {"answer": rooted(_schema(body), "#/$defs/answer")}}
    form = inner(body, "response_format")
    return {**body, "response_format": {**form, "json_schema": {**inner(form, "json_schema"), "schema": moved}}}


def _schema(body: Body) -> Body:
    return inner(inner(inner(body, "response_format"), "json_schema"), "schema")


def _refers_to_root(node: Json) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == "#" or any(_refers_to_root(child) for child in node.values())
    return isinstance(node, list) and any(_refers_to_root(child) for child in node)
