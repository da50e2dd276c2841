"""What every operation of the OpenAPI document says of its errors: which statuses, and OpenAI's error object."""

from typing import Any, Final

ERROR: Final[dict[str, Any]] = {
    "title": "ErrorAnswer",
    "description": "OpenAI's error object.",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "A sentence that says what to do."},
                "type": {"type": "string"},
                "param": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "The field at fault."},
                "code": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A short word for programs."},
            },
        }
    },
}
_REFERENCE: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
_KEY: Final = {
    "401": "No key, or one that is unknown or revoked.",
    "431": "The headers are over the limit of 64 KiB.",
    "503": "It cannot be done now; `Retry-After` says when to come back.",
}
_GIVEN: Final = {"400": "The request is wrong; `param` names the field."}
_NAMED: Final = {"404": "There is no such thing, or it is another key's."}
_RUN: Final = {"410": "What is asked for of the run is not kept any more.", "507": "There is no room for its files."}
_CHANGING: Final = {
    "403": "The key's scope does not allow it.",
    "409": "It cannot be done to a thing in this state.",
}
_SENT: Final = {"413": "The body is over `server.max_body_mb`.", "507": "The disk, or a quota, has no room."}
_OPEN: Final = frozenset({"/healthz"})
"""Asked without a key."""


def tell_errors(document: dict[str, Any]) -> None:
    """Write the errors of all operations into the document, in place of what the framework takes for granted."""
    document["components"]["schemas"]["ErrorAnswer"] = ERROR
    for path, item in document["paths"].items():
        for method, operation in item.items():
            answers = operation["responses"]
            by_framework = answers.pop("422", None) is not None
            if path not in _OPEN:
                own = "400" in answers  # it says itself what can go wrong
                words = _KEY if own else _statuses(path, method, operation, given=by_framework)
                answers |= {status: {"description": text} for status, text in words.items() if status not in answers}
            for status, answer in answers.items():
                if status >= "400":
                    answer["content"] = _REFERENCE
            operation["responses"] = dict(sorted(answers.items()))
    for name in ("HTTPValidationError", "ValidationError"):  # the framework's own, which nothing here answers
        document["components"]["schemas"].pop(name, None)


def _statuses(path: str, method: str, operation: dict[str, Any], *, given: bool) -> dict[str, str]:
    """The error statuses of a route on the framework; `given`: it takes something that can be wrong."""
    words = dict(_KEY)
    if given:
        words |= _GIVEN
    if given or "requestBody" in operation:
        words |= _NAMED
    if path.startswith("/v1/runs/"):
        words |= _RUN
    if method != "get" or path.startswith("/admin/"):
        words |= _CHANGING
    if "requestBody" in operation:
        words |= _SENT
    return words
