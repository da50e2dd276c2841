"""This server's own OpenAPI document: FastAPI's routes, and the hot ones that FastAPI does not know."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from api.media import lora_intake
from api.media.images import DRAWS, PICTURES
from api.media.ocr import READS
from api.media.video import PATH as FILMS
from api.openai.audio import SOUNDS
from api.openai.file_intake import operations
from api.openai.resources import PATHS, request_schemas
from api.openai.schemas import images, speech, video
from api.openai.schemas.audio import form_schema
from api.openai.schemas.ocr import SHAPES
from api.openai.speech import SPEAKS
from api.openapi_errors import tell_errors
from infra.ffmpeg_audio import FORMS

_SUMMARIES = {
    "chat": "Chat completion",
    "completions": "Text completion",
    "responses": "A response; `previous_response_id` goes on from an earlier one",
    "input_tokens": "The tokens that a response's input has",
    "compact": "A conversation made shorter: its user's messages, and a sealed summary of the rest",
    "embeddings": "Embeddings",
    "rerank": "Rerank documents by relevance to a query",
    "transcribe": "The text of a recording",
    "speech": "Speak a text",
    "translate": "The text of a recording, in English",
    "images": "Make images of a text",
    "images_edit": "Make images of an image and a text, perhaps within a mask",
    "images_variation": "Make images that are like an image",
    "video": "Make videos of a text, perhaps from an image",
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
    "409": "The run was cancelled.",
    "413": "The body is over `server.max_body_mb`.",
    "429": "The key is over its limit; `Retry-After` says when to come back.",
    "501": "A part that this needs is not installed; the message names the command that brings it.",
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
        made["paths"].setdefault(path, {})["post"] = _operation(name, _placed(shapes, requests[name]))
    for path, batch in READS.items():
        schema = SHAPES[batch].json_schema(ref_template="#/components/schemas/{model}")
        operation = _operation("ocr_batch" if batch else "ocr", _placed(shapes, schema))
        operation["requestBody"]["content"]["multipart/form-data"] = {"schema": _form(schema, batch=batch)}
        made["paths"][path] = {"post": operation}
    for path, drawing in DRAWS.items():
        name = "images" if drawing == "generate" else f"images_{drawing}"
        made["paths"][path] = {"post": _making(shapes, name, images.SHAPES[drawing], PICTURES[drawing])}
    made["paths"][FILMS] = {"post": _making(shapes, "video", video.SHAPE, ("image",))}
    schema = speech.SHAPE.json_schema(ref_template="#/components/schemas/{model}")
    spoken = _operation("speech", _placed(shapes, schema))
    spoken["responses"]["200"]["content"] = {each.media_type: {} for each in FORMS.values()} | {"text/event-stream": {}}
    made["paths"][SPEAKS] = {"post": spoken}
    for path, task in SOUNDS.items():
        operation = _operation(task, "")
        operation["requestBody"]["content"] = {"multipart/form-data": {"schema": form_schema(task)}}
        operation["responses"]["200"]["content"]["text/plain"] = {}
        made["paths"][path] = {"post": operation}
    for path, operation in (operations() | lora_intake.operations()).items():
        made["paths"].setdefault(path, {})["post"] = operation
    made["paths"] = dict(sorted(made["paths"].items()))
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"key": []}]
    tell_errors(made)
    return made


def _placed(shapes: dict[str, Any], schema: dict[str, Any]) -> str:
    """Put a schema among the shapes, and those that it refers to under names that no other schema's have; where it is.

    Several requests have a message, or a function, of their own.
    """
    title, inner = schema["title"], schema.pop("$defs", {})
    renamed = {f"#/components/schemas/{name}": f"#/components/schemas/{title}{name}" for name in inner}
    shapes |= {f"{title}{name}": _renamed(shape, renamed) for name, shape in inner.items()}
    shapes[title] = _renamed(schema, renamed)
    return f"#/components/schemas/{title}"


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """A schema with its references changed, those of a discriminator too."""
    if isinstance(value, dict):
        return {key: _renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def _making(shapes: dict[str, Any], name: str, shape: TypeAdapter[Any], pictures: tuple[str, ...]) -> dict[str, Any]:
    """An operation that makes files; it may come as a form, in which its pictures are files."""
    schema = shape.json_schema(ref_template="#/components/schemas/{model}")
    operation = _operation(name, _placed(shapes, schema))
    fields: dict[str, Any] = {field: {"type": "string"} for field in schema["properties"]}
    fields |= {picture: {"type": "string", "format": "binary"} for picture in pictures}
    form = {"type": "object", "properties": fields, "required": schema["required"]}
    operation["requestBody"]["content"]["multipart/form-data"] = {"schema": form}
    return operation


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
    if name in ("chat", "completions", "responses", "images", "images_edit", "transcribe"):
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
