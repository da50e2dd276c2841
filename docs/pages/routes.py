"""The API reference, from the server's own OpenAPI document."""

from collections.abc import Iterator
from typing import Any

from docs.pages import NOTICE, table

INTRODUCTION = """# HTTP API

The paths below `/v1` are OpenAI's, for its clients. A request needs `Authorization: Bearer <key>`, unless it says
otherwise here. An error is always OpenAI's error object, `{"error": {"message", "type", "param", "code"}}`; its message
is a sentence that says what to do. Every answer of a model carries `X-Coderai-Run`, the run's id, and
`X-Coderai-Engine`, who did it. The document this page comes from is served at `/openapi.json`.

"""
METHODS = ("get", "post", "put", "patch", "delete")

Document = dict[str, Any]  # OpenAPI is nested JSON whose shape its own specification gives


def page(document: Document) -> str:
    """The whole page as Markdown."""
    parts = [NOTICE.format(source="the server's openapi.json"), INTRODUCTION]
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                parts += _operation(document, f"{method.upper()} {path}", item[method])
    return "".join(parts).rstrip() + "\n"


def _operation(document: Document, name: str, operation: Document) -> Iterator[str]:
    yield f"## `{name}`\n\n{operation.get('summary', '')}\n\n"
    if operation.get("description"):
        yield f"{operation['description'].strip()}\n\n"
    if operation.get("security") == []:
        yield "Needs no key.\n\n"
    if rows := [_parameter(parameter) for parameter in operation.get("parameters", [])]:
        yield table(("parameter", "in", "value", "meaning"), rows) + "\n"
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body, `{media}`:\n\n" + _fields(document, _resolve(document, body.get("schema", {}))) + "\n"
    answers = operation.get("responses", {}).items()
    yield table(("status", "answer"), [(f"`{status}`", answer.get("description", "")) for status, answer in answers])
    yield "\n"


def _parameter(parameter: Document) -> tuple[str, ...]:
    schema = parameter.get("schema", {})
    return f"`{parameter['name']}`", parameter["in"], _kind(schema), parameter.get("description", "")


def _fields(document: Document, schema: Document) -> str:
    needed = schema.get("required", [])
    rows = [
        (f"`{name}`", _kind(field), "required" if name in needed else _default(field), field.get("description", ""))
        for name, field in schema.get("properties", {}).items()
    ]
    return table(("field", "value", "default", "meaning"), rows) if rows else f"{_kind(schema)}\n"


def _resolve(document: Document, schema: Document) -> Document:
    if "$ref" not in schema:
        return schema
    found: Document = document
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


def _kind(schema: Document) -> str:
    """A schema in a few words; what is nested further is named, not spelled out."""
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_kind(option) for option in schema[word]))
    if "const" in schema or "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _default(field: Document) -> str:
    return "" if field.get("default") is None else f"`{field['default']}`"
