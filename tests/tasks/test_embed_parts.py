"""A part on its engine, and what is made of all parts, with an engine that is a server on a real socket."""

import base64
import json
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.errors import EngineFailed
from infra.types import EngineId, Json, PoolId
from tasks.embed_parts import compare_parts, embed_part, merge_embeddings
from tasks.types import TaskCall, Usage
from tests.fakes import make_entry
from workers.live import Engine
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket
VECTORS = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [0.0, 2.0]}


def as_base64(vector: list[float]) -> str:
    return base64.b64encode(array("f", vector).tobytes()).decode()


class Far:
    """An embedder. `floats`: it knows no base64; `answer` is given instead, if set."""

    def __init__(self) -> None:
        self.floats = False
        self.answer: Any = None
        self.asked: list[Any] = []
        self.engine = Engine(EngineId("cpu/m"), make_entry(served_model="inner"), PoolId("cpu"), True, 1)
        self.transport = Transport()

    async def handle(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.asked.append(asked)
        if self.answer is not None:
            return web.Response(body=self.answer)
        data: list[dict[str, Any]] = []
        for index, text in enumerate(asked["input"]):
            vector = VECTORS[text]
            embedding = vector if self.floats else as_base64(vector)
            data.insert(0, {"object": "embedding", "index": index, "embedding": embedding})
            if not self.floats:
                data[0]["encoding_format"] = "base64"
        usage = {"prompt_tokens": len(data), "total_tokens": len(data)}
        return web.json_response({"object": "list", "model": "inner", "data": data, "usage": usage})

    async def part(self, *texts: str, **more: Json) -> dict[str, Json]:
        request: dict[str, Json] = {"model": "m", "input": list[Json](texts), **more}
        result = await embed_part(TaskCall({"request": request, "split": []}, self.transport, self.engine))
        assert isinstance(result.value, dict)
        assert result.usage == Usage(len(texts))
        return result.value

    def merging(self, *parts: dict[str, Json], **inputs: Json) -> TaskCall:
        """The call of a merge of these parts."""
        ranges: list[Json] = [[0, 1] for _ in parts]
        named: dict[str, Json] = {f"part-{number}": part for number, part in enumerate(parts, 1)}
        return TaskCall({"split": ranges, **named, "model": "m", "encoding_format": None, **inputs}, self.transport)


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    made = Far()
    app = web.Application()
    app.router.add_post("/v1/embeddings", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.engine.base_url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


@pytest.mark.parametrize("floats", [False, True])
async def test_parts_become_one_answer_in_order(far: Far, floats: bool) -> None:
    far.floats = floats
    parts = [await far.part("a", "b"), await far.part("c")]
    assert json.loads(json.dumps(parts)) == parts
    answer = json.loads((await merge_embeddings(far.merging(*parts))).value)  # type: ignore[arg-type]
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    assert [set(item) for item in answer["data"]] == [{"object", "index", "embedding"}] * 3
    for item, vector in zip(answer["data"], VECTORS.values(), strict=True):
        assert item["embedding"] == pytest.approx(vector)
    assert (answer["object"], answer["model"]) == ("list", "m")
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


async def test_base64_is_passed_on(far: Far) -> None:
    parts = [await far.part("a", encoding_format="base64"), await far.part("b")]
    answer = json.loads((await merge_embeddings(far.merging(*parts, encoding_format="base64"))).value)  # type: ignore[arg-type]
    assert answer["data"] == [
        {"object": "embedding", "encoding_format": "base64", "index": index, "embedding": as_base64(VECTORS[name])}
        for index, name in enumerate("ab")
    ]


async def test_fewer_dimensions_as_without_parts(far: Far) -> None:
    answer = json.loads((await merge_embeddings(far.merging(await far.part("b", dimensions=1)))).value)  # type: ignore[arg-type]
    assert answer["data"][0]["embedding"] == [1.0]
    assert far.asked[0] == {"model": "inner", "input": ["b"], "encoding_format": "base64"}


@pytest.mark.parametrize(
    "answer",
    [
        b"no JSON",
        b"[]",
        b'{"data": null}',
        b'{"data": [{"index": 0, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 2, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": 7}]}',
    ],
)
async def test_a_part_that_is_not_whole_has_failed(far: Far, answer: bytes) -> None:
    far.answer = answer
    with pytest.raises(EngineFailed, match="cpu/m did not embed every input"):
        await far.part("a", "b")


@pytest.mark.parametrize("floats", [False, True])
async def test_documents_are_compared_with_the_query_that_leads(far: Far, floats: bool) -> None:
    far.floats = floats
    result = await compare_parts(far.merging(await far.part("a", "b"), await far.part("c")))
    assert isinstance(result.value, dict)
    assert result.value["scores"] == pytest.approx([0.6, 0.0])
    assert result.value["prompt_tokens"] == 3


async def test_parts_that_do_not_fit_together(far: Far) -> None:
    parts: list[dict[str, Json]] = [
        {"lists": [list[Json](vector)], "item": {}, "prompt_tokens": 1} for vector in ([1.0], [1.0, 2.0])
    ]
    with pytest.raises(EngineFailed, match="not of one length"):
        await compare_parts(far.merging(*parts))
