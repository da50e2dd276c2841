"""This server's own OpenAPI document: FastAPI's routes, and the hot ones that FastAPI does not know."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.media.ocr import READS
from api.openai.audio import SOUNDS
from api.openai.file_intake import operations
from api.openai.resources import PATHS, request_schemas
from api.openai.schemas.audio import form_schema
from api.openai.schemas.ocr import SHAPES

_SUMMARIES = {
    "chat": "Chat completion",
    "completions": "Text completion",
    "responses": "A response; `previous_response_id` goes on from an earlier one",
    "embeddings": "Embeddings",
    "rerank": "Rerank documents by relevance to a query",
    "transcribe": "The text of a recording",
    "translate": "The text of a recording, in English",
    "ocr": "Read a document: an image or a PDF",
    "ocr_batch": "Read several documents; each has its own answer or error",
}
_HEADERS = {
    "X-Session-Id": "Requests of one session go where its conversation's cache is.",
    "X-Coderai-Lane": "`interactive` (the default), or `job`: the answer is 202 with the run's address, and the rest "
    "comes there (`GET /v1/runs/{run}`).",
    "Idempotency-Key": "For jobs: a request that is sent twice under one key is run once.",
}
_SHARED_ANSWERS = {
    "202": "It was taken as a job; `Location` is the run's address.",
    "400": "The request is wrong; `param` names the field.",
    "401": "No key, or one that is unknown or revoked.",
    "404": "The model is not available; the message has near names.",
    "413": "The body is over `server.max_body_mb`.",
    "429": "The key is over its limit; `Retry-After` says when to come back.",
    "502": "The engine failed, here and elsewhere; the message names where it was tried.",
    "503": "No free slot, or the model is still loading; `Retry-After` says when to come back.",
}


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=app.description)
    components = made.setdefault("components", {})
    shapes = components.setdefault("schemas", {})
    requests = request_schemas()
    for path, name in PATHS.items():
        schema = requests[name]
        shapes.update(schema.pop("$defs", {}))
        shapes[schema["title"]] = schema
        made["paths"][path] = {"post": _operation(name, f"#/components/schemas/{schema['title']}")}
    for path, batch in READS.items():
        schema = SHAPES[batch].json_schema(ref_template="#/components/schemas/{model}")
        shapes.update(schema.pop("$defs", {}))
        shapes[schema["title"]] = schema
        operation = _operation("ocr_batch" if batch else "ocr", f"#/components/schemas/{schema['title']}")
        operation["requestBody"]["content"]["multipart/form-data"] = {"schema": _form(schema, batch=batch)}
        made["paths"][path] = {"post": operation}
    for path, task in SOUNDS.items():
        operation = _operation(task, "")
        operation["requestBody"]["content"] = {"multipart/form-data": {"schema": form_schema()}}
        operation["responses"]["200"]["content"]["text/plain"] = {}
        made["paths"][path] = {"post": operation}
    for path, operation in operations().items():
        made["paths"].setdefault(path, {})["post"] = operation
    made["paths"] = dict(sorted(made["paths"].items()))
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"key": []}]
    return made


def _form(schema: dict[str, Any], *, batch: bool) -> dict[str, Any]:
    """The same request as a form: its documents are files, and all else are texts."""
    file: dict[str, Any] = {"type": "string", "format": "binary"}
    name, documents = ("files", {"type": "array", "items": file}) if batch else ("file", file)
    fields = {field: {"type": "string"} for field in schema["properties"]} | {name: documents}
    return {"type": "object", "properties": fields, "required": [name]}


def _operation(name: str, body: str) -> dict[str, Any]:
    answers: dict[str, Any] = {
        status: {"description": text, "content": {"application/json": {}}} for status, text in _SHARED_ANSWERS.items()
    }
    content: dict[str, Any] = {"application/json": {}}
    if name in ("chat", "completions", "responses"):
        content["text/event-stream"] = {}
    answers["200"] = {"description": "The answer, in OpenAI's shape.", "content": content}
    return {
        "summary": _SUMMARIES[name],
        "operationId": name,
        "tags": [name],
        "parameters": [
            {"name": header, "in": "header", "schema": {"type": "string"}, "description": words}
            for header, words in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": body}}}},
        "responses": dict(sorted(answers.items())),
    }
