"""The OpenAPI document has every route that is served, the plain ASGI ones included, and no other."""

import json
import re
from collections.abc import Iterator
from functools import cache

import jsonschema
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from api.app import build_openapi, cold_app
from api.media.images import DRAWS
from api.media.lora_intake import operations as lora_operations
from api.media.ocr import READS
from api.media.video import PATH as FILMS
from api.openai.audio import SOUNDS
from api.openai.file_intake import operations
from api.openai.resources import PATHS, RESOURCES, request_schemas
from api.openai.speech import SPEAKS
from tests.api.conftest import StartFront

METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE")


@cache
def documented() -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, item in build_openapi()["paths"].items()
        for method in item
        if method.upper() in METHODS
    }


def routes() -> Iterator[APIRoute]:
    def below(found: list[BaseRoute]) -> Iterator[APIRoute]:
        for route in found:
            if isinstance(route, APIRoute):
                yield route
            else:
                yield from below(
                    list(getattr(getattr(route, "original_router", None), "routes", []))
                )  # an included router's

    return below(list(cold_app().routes))


def served() -> set[tuple[str, str]]:
    cold = {(method, route.path_format) for route in routes() for method in route.methods or ()}
    return cold | {
        ("POST", path) for path in (*PATHS, *SOUNDS, *READS, *DRAWS, FILMS, SPEAKS, *operations(), *lora_operations())
    }


def test_what_is_served_is_documented_and_nothing_else() -> None:
    assert documented() == served()


async def test_every_documented_route_answers_and_no_other_method_does(start_front: StartFront) -> None:
    """Seen from outside: a route that is there does not say 404 `unknown_url` or 405."""
    front = await start_front()
    paths = {path for _method, path in documented()} | {"/docs", "/redoc", "/v1", "/", "/admin/api", "/v1/chat"}
    wrong: list[str] = []
    for path in sorted(paths):
        for method in METHODS:
            url = front.url + re.sub(r"\{\w+\}", "tiny", path)
            headers = front.headers("admin") | {"Content-Type": "application/json"}
            async with front.session.request(method, url, headers=headers, data=b"{}") as answer:
                body = await answer.read()
            code = json.loads(body)["error"]["code"] if answer.status == 404 and body else ""
            there = answer.status != 405 and code != "unknown_url" and not (method == "HEAD" and answer.status == 404)
            if there != _is_documented(method, path):
                wrong.append(f"{method} {path}: {answer.status}")
    assert not wrong, "\n".join(wrong)


def _is_documented(method: str, path: str) -> bool:
    """Whether it is, also as one of the things that a path with a name in it stands for."""
    return any(
        method == known and (path == template or re.fullmatch(re.sub(r"\{\w+\}", "[^/{]+", template), path))
        for known, template in documented()
    )


def test_every_operation_says_what_it_does() -> None:
    operations = [item[method] for item in build_openapi()["paths"].values() for method in item]
    assert all(operation["summary"] and operation["tags"] for operation in operations)
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))


def test_every_hot_route_has_its_resource_and_schema() -> None:
    assert set(PATHS.values()) == set(request_schemas()) <= set(RESOURCES)
    document = build_openapi()
    for path, name in PATHS.items():
        operation = document["paths"][path]["post"]
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert "model" in schema["properties"]
        assert {parameter["name"] for parameter in operation["parameters"]} >= {"X-Coderai-Lane", "Idempotency-Key"}
        assert {"200", "202", "400", "401", "404", "413", "429", "502", "503"} <= set(operation["responses"])
        assert ("text/event-stream" in operation["responses"]["200"]["content"]) == (
            name in ("chat", "completions", "responses")
        )


def test_a_hot_route_s_shapes_hide_none_of_the_others() -> None:
    app = cold_app()
    cold = get_openapi(title="x", version="1", routes=app.routes)["components"]["schemas"]
    whole = build_openapi()["components"]["schemas"]
    ours = cold.keys() - {"HTTPValidationError", "ValidationError"}  # no answer here has the framework's form
    assert {name: whole[name] for name in ours} == {name: cold[name] for name in ours}


def test_two_requests_have_shapes_of_one_name_and_both_are_there() -> None:
    shapes = build_openapi()["components"]["schemas"]
    chat, response = shapes["ChatBody_FunctionTool"], shapes["ResponsesBody_Function"]
    assert chat["properties"]["function"]["$ref"] == "#/components/schemas/ChatBodyFunction"
    assert response["properties"].keys() >= {"type", "name", "parameters"}


def test_every_operation_tells_of_its_errors_in_openai_s_shape() -> None:
    for path, item in build_openapi()["paths"].items():
        for method, operation in item.items():
            errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            assert "422" not in errors, (method, path)
            assert errors.keys() >= {"401", "503"} or path == "/healthz", (method, path)
            for answer in errors.values():
                (media,) = answer["content"].items()
                assert media == ("application/json", {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}})


def test_a_key_is_asked_for() -> None:
    document = build_openapi()
    (name,) = document["security"][0]
    assert document["components"]["securitySchemes"][name] == {"type": "http", "scheme": "bearer"}


def test_every_reference_leads_somewhere() -> None:
    document = build_openapi()
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document)):
        node = document
        for part in reference.split("/"):
            assert part in node, reference
            node = node[part]


async def test_the_served_document_is_the_built_one(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await front.get("/openapi.json")
    assert (status, body) == (200, json.loads(json.dumps(build_openapi())))
