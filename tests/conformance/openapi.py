"""Real answers held against OpenAI's own OpenAPI document.

The document is not part of this repository: `--spec` names a copy of
`openapi.json` (plain or gzipped) from github.com/openai/openai-openapi. Without one this says so and checks nothing.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jsonschema
import orjson
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from benchmarks.exchange import Answer, get, post
from infra.types import Json

_BASE = "urn:openai"
_CHAT, _COMPLETIONS, _EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
_RESPONSES = "/v1/responses"
_TALK: list[Json] = [
    {"role": "user", "content": "I want to go to Lisbon with my two children in May."},
    {"role": "assistant", "content": "I found a flight on 12 May for 640 euros."},
]


class Spec:
    """The document, ready to validate against any of its component schemas."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        schemas = _without_nullable(document["components"]["schemas"])
        resource = DRAFT202012.create_resource({"$id": _BASE, "components": {"schemas": schemas}})
        self._registry = Registry().with_resource(_BASE, resource)

    def errors(self, schema: str, value: Json) -> list[str]:
        """What is wrong with a value, with its place; empty when it fits."""
        validator = jsonschema.Draft202012Validator(
            {"$ref": f"{_BASE}#/components/schemas/{schema}"}, registry=self._registry
        )
        found = (jsonschema.exceptions.best_match([error]) or error for error in validator.iter_errors(value))
        return [f"{error.json_path}: {error.message[:300]}" for error in found]


def _without_nullable(value: object) -> object:
    """The document is OpenAPI 3.1, but some of its schemas still say `nullable`, as in 3.0: write it as a union."""
    if isinstance(value, list):
        return [_without_nullable(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _without_nullable(each) for name, each in value.items() if name != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if value.get("nullable") is True else plain


@dataclass(frozen=True)
class Check:
    """One request and the schema that its answer, or each event of its answer, must fit."""

    name: str
    schema: str
    status: int
    ask: Callable[[int, str], Answer]
    streamed: bool = False
    done: str = r"\[DONE\]"
    """What the data of a stream's last event must match."""
    allowed: dict[str, str] = field(default_factory=dict)
    """Places of deviations that are right all the same, with the reason."""


_NULL_UNTIL_LAST = {
    "$.choices[0].finish_reason": "the document has one schema for whole and streamed completions; "
    "OpenAI's server, and its client's type, have null here until the last event"
}


def checks(text_model: str, embedding_model: str) -> list[Check]:
    """Every kind of answer that the text endpoints give."""
    chat: dict[str, Json] = {
        "model": text_model,
        "messages": [{"role": "user", "content": "Name one colour."}],
        "max_tokens": 12,
    }
    text: dict[str, Json] = {"model": text_model, "prompt": "One, two,", "max_tokens": 8}
    embed: dict[str, Json] = {"model": embedding_model, "input": ["a word", "another"]}
    stream: dict[str, Json] = {"stream": True, "stream_options": {"include_usage": True}}
    logprobs: dict[str, Json] = {"logprobs": True, "top_logprobs": 2}
    chat_answer, chat_chunk = "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"
    return [
        Check("chat", chat_answer, 200, _posted(_CHAT, chat)),
        Check("chat, n=2", chat_answer, 200, _posted(_CHAT, chat | {"n": 2})),
        Check("chat, logprobs", chat_answer, 200, _posted(_CHAT, chat | logprobs)),
        Check("chat, tool required", chat_answer, 200, _posted(_CHAT, chat | _tools() | {"max_tokens": 64})),
        Check("chat, JSON mode", chat_answer, 200, _posted(_CHAT, chat | {"response_format": {"type": "json_object"}})),
        Check("chat streamed", chat_chunk, 200, _posted(_CHAT, chat | stream), streamed=True),
        Check("chat streamed, logprobs", chat_chunk, 200, _posted(_CHAT, chat | stream | logprobs), streamed=True),
        Check("completion", "CreateCompletionResponse", 200, _posted(_COMPLETIONS, text)),
        Check("completion, logprobs", "CreateCompletionResponse", 200, _posted(_COMPLETIONS, text | {"logprobs": 1})),
        Check(
            "completion streamed",
            "CreateCompletionResponse",
            200,
            _posted(_COMPLETIONS, text | stream),
            streamed=True,
            allowed=_NULL_UNTIL_LAST,
        ),
        *_responses(text_model),
        Check("embeddings", "CreateEmbeddingResponse", 200, _posted(_EMBEDDINGS, embed)),
        Check("models", "ListModelsResponse", 200, _got("/v1/models")),
        Check("model", "Model", 200, _got(f"/v1/models/{text_model}")),
        Check("unknown model", "ErrorResponse", 404, _posted(_CHAT, chat | {"model": "no-such-model"})),
        Check("unknown model looked up", "ErrorResponse", 404, _got("/v1/models/no-such-model")),
        Check("no messages", "ErrorResponse", 400, _posted(_CHAT, {"model": text_model})),
        Check("not JSON", "ErrorResponse", 400, lambda port, key: post(port, _CHAT, b"{", key)),
        Check("a wrong key", "ErrorResponse", 401, lambda port, key: get(port, "/v1/models", "sk-wrong")),
    ]


def _responses(model: str) -> list[Check]:
    """What `/v1/responses` gives."""
    asked: dict[str, Json] = {"model": model, "input": "Name one colour.", "max_output_tokens": 16}
    called: dict[str, Json] = {
        "tools": [{"type": "function", "strict": True, **_function()}],
        "tool_choice": "required",
    }
    logprobs: dict[str, Json] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    done = r'\{"type":"response\.(completed|incomplete)"'
    answer, event = "Response", "ResponseStreamEvent"

    def streamed(more: dict[str, Json]) -> Callable[[int, str], Answer]:
        return _posted(_RESPONSES, asked | {"stream": True} | more)

    return [
        Check(
            "response", answer, 200, _posted(_RESPONSES, asked | {"instructions": "Be brief.", "metadata": {"a": "b"}})
        ),
        Check("response, logprobs", answer, 200, _posted(_RESPONSES, asked | logprobs)),
        Check("response, a forced tool", answer, 200, _posted(_RESPONSES, asked | called)),
        Check("response streamed", event, 200, streamed({}), streamed=True, done=done),
        Check("response streamed, logprobs", event, 200, streamed(logprobs), streamed=True, done=done),
        Check("response streamed, a forced tool", event, 200, streamed(called), streamed=True, done=done),
        Check("tokens of an input", "TokenCountsResource", 200, _posted(f"{_RESPONSES}/input_tokens", asked)),
        Check("compaction", "CompactResource", 200, _posted(f"{_RESPONSES}/compact", {"model": model, "input": _TALK})),
        Check("input items", "ResponseItemList", 200, _input_items(asked)),
        Check("input items, a compaction among them", "ResponseItemList", 200, _compacted_items(asked)),
        Check("no such response", "ErrorResponse", 404, _got(f"{_RESPONSES}/resp_none")),
        Check("a response from no input", "ErrorResponse", 400, _posted(_RESPONSES, {"model": model})),
    ]


def _input_items(asked: dict[str, Json], before: Iterable[Json] = ()) -> Callable[[int, str], Answer]:
    items: list[Json] = [
        *before,
        {"role": "user", "content": "Hello."},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    ]

    def ask(port: int, key: str) -> Answer:
        made = orjson.loads(_posted(_RESPONSES, asked | {"input": items})(port, key).body)
        return get(port, f"{_RESPONSES}/{made['id']}/input_items", key)

    return ask


def _compacted_items(asked: dict[str, Json]) -> Callable[[int, str], Answer]:
    def ask(port: int, key: str) -> Answer:
        compact = _posted(f"{_RESPONSES}/compact", {"model": asked["model"], "input": _TALK})
        made = orjson.loads(compact(port, key).body)
        return _input_items(asked, made["output"])(port, key)

    return ask


def _tools() -> dict[str, Json]:
    return {"tools": [{"type": "function", "function": _function()}], "tool_choice": "required"}


def _function() -> dict[str, Json]:
    parameters: Json = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 10}}}
    return {"name": "weather", "description": "The weather of a city.", "parameters": parameters}


def _posted(path: str, body: dict[str, Json]) -> Callable[[int, str], Answer]:
    return lambda port, key: post(port, path, orjson.dumps(body), key)


def _got(path: str) -> Callable[[int, str], Answer]:
    return lambda port, key: get(port, path, key)


def validate(spec: Spec, port: int, key: str, wanted: list[Check]) -> Iterator[tuple[Check, list[str]]]:
    """Ask each question and say what is wrong with its answer."""
    for check in wanted:
        answer = check.ask(port, key)
        if answer.status != check.status:
            yield check, [f"status {answer.status} instead of {check.status}: {answer.text[:300]}"]
        elif check.streamed:
            yield check, _stream_errors(spec, check, answer)
        else:
            yield check, spec.errors(check.schema, orjson.loads(answer.body))


def _stream_errors(spec: Spec, check: Check, answer: Answer) -> list[str]:
    events = [line.removeprefix("data:").strip() for line in answer.text.splitlines() if line.startswith("data:")]
    problems = [] if events and re.match(check.done, events[-1]) else [f"the last event is not {check.done}"]
    told = [orjson.loads(event) for event in events if event != "[DONE]"]
    seen = (problem for event in told for problem in spec.errors(check.schema, event))
    return problems + list(dict.fromkeys(seen))
