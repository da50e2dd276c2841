"""The errors of a document, as they are written into it."""

from typing import Any

from api.openapi_errors import tell_errors


def made(path: str, method: str, **operation: Any) -> dict[str, Any]:
    """The answers of one operation afterwards."""
    document: dict[str, Any] = {
        "paths": {path: {method: {"responses": {"200": {"description": "well"}}} | operation}},
        "components": {"schemas": {"HTTPValidationError": {}, "Kept": {}}},
    }
    tell_errors(document)
    assert document["components"]["schemas"].keys() == {"Kept", "ErrorAnswer"}
    answers: dict[str, Any] = document["paths"][path][method]["responses"]
    return answers


def test_what_only_looks_has_few_errors() -> None:
    assert made("/v1/models", "get").keys() == {"200", "401", "431", "503"}
    assert made("/healthz", "get").keys() == {"200"}


def test_what_the_framework_says_of_itself_is_replaced() -> None:
    answers = made("/v1/files/{file}", "delete", responses={"200": {}, "422": {}})
    assert answers.keys() == {"200", "400", "401", "403", "404", "409", "431", "503"}


def test_a_run_may_be_there_and_its_answer_not() -> None:
    assert made("/v1/runs/{run}/answer", "get", responses={"200": {}, "422": {}}).keys() >= {"404", "410", "507"}


def test_what_takes_a_body_may_find_it_too_large() -> None:
    answers = made("/v1/uploads", "post", requestBody={}, responses={"200": {}, "422": {}})
    assert answers.keys() >= {"400", "404", "413", "507"}


def test_what_says_its_errors_itself_keeps_its_words() -> None:
    answers = made("/v1/chat/completions", "post", responses={"200": {}, "400": {"description": "ours"}})
    assert answers.keys() == {"200", "400", "401", "431", "503"}
    assert answers["400"]["description"] == "ours"
    assert answers["400"]["content"]["application/json"]["schema"]["$ref"].endswith("ErrorAnswer")
