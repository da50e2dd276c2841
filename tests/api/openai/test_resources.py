"""The hot routes' table: what each lets pass, what it streams, and what its conversations are known by."""

from typing import Any

import pytest

from api.openai.resources import PATHS, RESOURCES, request_schemas
from infra.errors import InvalidRequest
from infra.types import Json
from tests.fakes import make_entry
from workers.types import Capability, ModelEntry, ModelFormat

BODIES: dict[str, dict[str, Json]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "completions": {"model": "m", "prompt": "hi"},
    "responses": {"model": "m", "input": "hi"},
    "input_tokens": {"model": "m", "input": "hi"},
    "compact": {"model": "m", "input": "hi"},
    "embeddings": {"model": "m", "input": "hi"},
    "rerank": {"model": "m", "query": "q", "documents": ["a", {"text": "b"}]},
}
NAMES = sorted(BODIES)
OTHER: list[Json] = [{"role": "user", "content": "ho"}]


def entry(far: bool = False, **fields: Any) -> ModelEntry:
    place: dict[str, Any] = {"format": ModelFormat.SERVICE, "path": None, "service_url": "http://box"} if far else {}
    return make_entry(capabilities=tuple(Capability), **place, **fields)


def test_every_path_has_its_resource() -> None:
    elsewhere = {"images", "ocr", "speech", "transcription", "video"}  # they have routes of their own
    assert sorted(PATHS.values()) == sorted(set(RESOURCES) - elsewhere) == NAMES
    assert {path: RESOURCES[name].kind for path, name in PATHS.items()} == {
        "/v1/chat/completions": Capability.CHAT,
        "/v1/completions": Capability.COMPLETIONS,
        "/v1/responses": Capability.CHAT,
        "/v1/responses/input_tokens": Capability.CHAT,
        "/v1/responses/compact": Capability.CHAT,
        "/v1/embeddings": Capability.EMBEDDINGS,
        "/v1/rerank": Capability.RERANK,
    }


@pytest.mark.parametrize("name", NAMES)
def test_fields_that_we_do_not_know(name: str) -> None:
    """A far service may know them; here they are a mistake of the caller's."""
    body = BODIES[name] | {"guided_regex": "a+"}
    plan, _stream = RESOURCES[name].planned(body, entry(far=True), None)
    assert plan.flow == name
    with pytest.raises(InvalidRequest) as caught:
        RESOURCES[name].planned(body, entry(), None)
    assert caught.value.param == "guided_regex"


@pytest.mark.parametrize("name", ["chat", "completions", "responses", "compact", "embeddings"])
def test_a_far_service_gets_the_fields_that_it_alone_knows(name: str) -> None:
    plan, _stream = RESOURCES[name].planned(BODIES[name] | {"guided_regex": "a+"}, entry(far=True), None)
    request = plan.steps[0].inputs["request"]
    assert isinstance(request, dict)
    assert request["guided_regex"] == "a+"


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_does_something_else(name: str) -> None:
    resource = RESOURCES[name]
    others = tuple(kind for kind in Capability if kind != resource.kind)
    with pytest.raises(InvalidRequest) as caught:
        resource.planned(BODIES[name], make_entry(capabilities=others), None)
    assert (caught.value.param, caught.value.code) == ("model", "unsupported_model")
    assert caught.value.message == f"model 'm' does not do {resource.kind}; it does {', '.join(others)}"


@pytest.mark.parametrize(
    ("name", "stream", "streamed"),
    [
        ("chat", True, True),
        ("chat", False, False),
        ("chat", None, False),
        ("completions", True, True),
        ("completions", None, False),
    ],
)
def test_what_is_streamed(name: str, stream: bool | None, streamed: bool) -> None:
    assert RESOURCES[name].planned(BODIES[name] | {"stream": stream}, entry(), None)[1] is streamed


@pytest.mark.parametrize("name", ["compact", "embeddings", "rerank"])
def test_what_is_never_streamed(name: str) -> None:
    assert RESOURCES[name].planned(BODIES[name], entry(), None)[1] is False


def key_of(name: str, session: str | None = None, *, affine: bool = True, **fields: Json) -> str | None:
    plan, _stream = RESOURCES[name].planned(BODIES[name] | fields, entry(), session, affine=affine)
    assert plan.steps[0].demand is not None
    return plan.steps[0].demand.affinity_key


@pytest.mark.parametrize("name", ["chat", "completions"])
def test_a_conversation_is_known_by_its_session_its_user_or_its_opening(name: str) -> None:
    assert key_of(name, "s", user="ann") == "session:s"
    assert key_of(name, user="ann") == "user:ann"
    opening = key_of(name)
    assert opening is not None
    assert opening.startswith("opening:")
    assert key_of(name, temperature=0) == opening
    assert (key_of(name, prompt="ho") if name == "completions" else key_of(name, messages=OTHER)) != opening
    assert key_of(name, "s", affine=False) is None


@pytest.mark.parametrize("name", ["embeddings", "rerank"])
def test_what_is_no_conversation_has_no_place(name: str) -> None:
    assert key_of(name, "s") is None


def test_a_compaction_goes_where_its_conversation_is_cached() -> None:
    first: list[Json] = [{"role": "user", "content": "hi"}]
    assert key_of("compact", input=[*first, {"role": "assistant", "content": "ho"}]) == key_of("responses", input=first)


def test_documents_are_texts_by_the_time_they_are_planned() -> None:
    plan, _stream = RESOURCES["rerank"].planned(BODIES["rerank"], entry(), None)
    assert plan.steps[0].inputs["documents"] == ["a", "b"]


def test_every_route_has_a_schema_whose_references_lead_into_the_document() -> None:
    schemas = request_schemas()
    assert sorted(schemas) == NAMES
    for name, schema in schemas.items():
        assert set(BODIES[name]) <= set(schema["properties"])
        assert '"$ref": "#/$defs' not in str(schema).replace("'", '"')
