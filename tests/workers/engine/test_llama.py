"""The engine process: real ones on tiny models, started as the supervisor starts them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio

from infra.settings import LlamaSettings
from infra.supervisor.guard import Guard
from infra.supervisor.supervise import Supervisor
from infra.supervisor.types import ChildState
from infra.types import EngineId, Json, ModelName, PoolId
from tests.infra.supervisor.programs import alive, until
from tests.tiny_gguf import EMBEDDING_DIMENSIONS, write_tiny_embedder, write_tiny_llama, write_tiny_reranker
from workers.engine.llama import parameters
from workers.engine.provider import child_spec, load_failure
from workers.types import Capability, ModelEntry, ModelFormat, Pooling
from workers.wire import EngineLaunch

KEY = "an-internal-key-of-ours"
CHAT = (Capability.CHAT, Capability.COMPLETIONS)
HELLO: Json = [{"role": "user", "content": "Hello"}]


def launch(path: Path, *capabilities: Capability, pooling: Pooling | None = None, **entry: Json) -> EngineLaunch:
    model = ModelEntry.model_validate(
        {
            "name": ModelName("tiny"),
            "format": ModelFormat.GGUF,
            "capabilities": capabilities or CHAT,
            "path": path,
            "pooling": pooling,
            **entry,
        }
    )
    return EngineLaunch(
        engine=EngineId("cpu/tiny"),
        entry=model,
        pool=PoolId("cpu"),
        backend="cpu",
        slots=2,
        context_tokens=600,
        threads=1,
        cache_ram_mib=16,
    )


@dataclass
class Engine:
    supervisor: Supervisor
    http: aiohttp.ClientSession
    base: str
    pid: int

    async def ask(self, path: str, body: Json = None, key: str = KEY) -> tuple[int, Any]:
        method = "GET" if body is None else "POST"
        headers = {"Authorization": f"Bearer {key}"}
        async with self.http.request(method, self.base + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)


@pytest_asyncio.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    async with Guard() as guard:
        supervisor = Supervisor(guard, print)
        yield supervisor
        await supervisor.close()


@asynccontextmanager
async def serving(supervisor: Supervisor, wanted: EngineLaunch) -> AsyncIterator[Engine]:
    state = await supervisor.start(child_spec(wanted, LlamaSettings(), KEY))
    async with aiohttp.ClientSession() as http:
        base = f"http://127.0.0.1:{state.port}"
        for _ in range(500):
            assert supervisor.states()[state.name].status == "running", supervisor.states()[state.name]
            try:
                async with http.get(f"{base}/health") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)
        assert state.pid is not None
        yield Engine(supervisor, http, base, state.pid)


async def ended(supervisor: Supervisor, wanted: EngineLaunch) -> ChildState:
    await supervisor.start(child_spec(wanted, LlamaSettings(), KEY))
    await until(lambda: supervisor.states()["cpu/tiny"].status != "running")
    return supervisor.states()["cpu/tiny"]


async def test_chat_under_our_name_with_slots_of_the_right_size(supervisor: Supervisor, tmp_path: Path) -> None:
    wanted = launch(write_tiny_llama(tmp_path / "m.gguf"), sampling={"temperature": 0.25, "max_tokens": 5})
    async with serving(supervisor, wanted) as engine:
        status, answer = await engine.ask("/v1/chat/completions", {"messages": HELLO})
        assert (status, answer["model"], answer["usage"]["completion_tokens"]) == (200, "tiny", 5)
        _, props = await engine.ask("/props")
        slot = props["default_generation_settings"]
        assert (props["total_slots"], slot["n_ctx"]) == (2, 768)
        used = slot["params"]
        assert (used["temperature"], used["min_p"], used["repeat_penalty"]) == pytest.approx((0.25, 0.05, 1.0))
        assert props["chat_template"].startswith("{% for m in messages %}")


async def test_nobody_without_the_key_and_no_side_doors(supervisor: Supervisor, tmp_path: Path) -> None:
    async with serving(supervisor, launch(write_tiny_llama(tmp_path / "m.gguf"))) as engine:
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/props", "/slots/0?action=save"):
            assert (await engine.ask(path, {"messages": HELLO}, key="wrong"))[0] == 401, path
        assert (await engine.ask("/v1/models", key=""))[0] == 401
        for path in ("/", "/index.html", "/slots", "/metrics"):
            assert (await engine.ask(path))[0] in (404, 501), path
        assert (await engine.ask("/props", {"chat_template": "x"}))[0] == 501
        assert (await engine.ask("/slots/0?action=save", {"filename": "x"}))[0] == 501
        image: Json = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
        status, answer = await engine.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": [image]}]})
        assert status >= 400
        assert "root:" not in str(answer)
        assert KEY not in " ".join(psutil.Process(engine.pid).cmdline())


async def test_a_model_files_own_sampling_does_not_decide(tmp_path: Path) -> None:
    params = parameters(launch(write_tiny_llama(tmp_path / "m.gguf")), 1, KEY)
    assert params.sampling.user_sampling_config == 0b1111_1111_1110


async def test_embeddings_of_long_texts(supervisor: Supervisor, tmp_path: Path) -> None:
    wanted = launch(write_tiny_embedder(tmp_path / "m.gguf"), Capability.EMBEDDINGS, pooling=Pooling.MEAN)
    async with serving(supervisor, wanted) as engine:
        status, answer = await engine.ask("/v1/embeddings", {"input": ["a b c", "a " * 500]})
        assert status == 200
        assert [len(item["embedding"]) for item in answer["data"]] == [EMBEDDING_DIMENSIONS] * 2
        assert sum(value * value for value in answer["data"][0]["embedding"]) == pytest.approx(1, abs=1e-3)


async def test_a_chat_model_can_embed_as_well(supervisor: Supervisor, tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    async with serving(supervisor, launch(path, *CHAT, Capability.EMBEDDINGS, pooling=Pooling.MEAN)) as engine:
        assert (await engine.ask("/v1/embeddings", {"input": "x" * 590}))[0] == 200
        assert (await engine.ask("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2}))[0] == 200


async def test_rerank(supervisor: Supervisor, tmp_path: Path) -> None:
    path = write_tiny_reranker(tmp_path / "m.gguf")
    async with serving(supervisor, launch(path, Capability.RERANK, pooling=Pooling.RANK)) as engine:
        status, answer = await engine.ask("/v1/rerank", {"query": "a", "documents": ["b", "c", "d"]})
        assert status == 200
        assert {item["index"] for item in answer["results"]} == {0, 1, 2}


async def test_both_slots_decode_at_once(supervisor: Supervisor, tmp_path: Path) -> None:
    async with serving(supervisor, launch(write_tiny_llama(tmp_path / "m.gguf"))) as engine:
        body: Json = {"prompt": "count", "max_tokens": 64, "temperature": 0}
        answers = await asyncio.gather(*(engine.ask("/v1/completions", body) for _ in range(6)))
        assert [status for status, _ in answers] == [200] * 6


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"not a model at all", "it is not a GGUF file"), (b"", "it is not a GGUF file"), (None, "No such file")],
)
async def test_what_is_no_model_is_said_once(
    supervisor: Supervisor, tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    state = await ended(supervisor, launch(path))
    assert (state.status, state.incarnation) == ("quarantined", 1)
    assert state.reason is not None
    assert state.reason.startswith(f"exited with code 78: error: cannot load {path}: {says}")


async def test_a_file_that_became_shorter(supervisor: Supervisor, tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    state = await ended(supervisor, launch(path, weights_bytes=path.stat().st_size + 1))
    assert state.status == "quarantined"
    assert state.reason is not None
    assert "it is incomplete" in state.reason


@pytest.mark.parametrize("damage", ["truncated", "garbage behind the magic", "magic alone"])
async def test_damaged_models_leave_a_reason(supervisor: Supervisor, tmp_path: Path, damage: str) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    whole = path.read_bytes()
    bad = {"truncated": whole[:100_000], "garbage behind the magic": b"GGUF\x03\0\0\0" + bytes(range(256)) * 99}
    path.write_bytes(bad.get(damage, b"GGUF"))
    state = await ended(supervisor, launch(path))
    assert state.status == "backoff"
    assert state.log_tail[-1].startswith(f"error: cannot load {path}: llama.cpp refused it")
    words = {
        "truncated": "tensor 'output.weight' data is not within the file bounds",
        "garbage behind the magic": "number of",
        "magic alone": "llama_model_loader: failed to load model",
    }
    assert load_failure(state.log_tail, "none").startswith(words[damage])


async def test_no_key_no_service(supervisor: Supervisor, tmp_path: Path) -> None:
    spec = child_spec(launch(write_tiny_llama(tmp_path / "m.gguf")), LlamaSettings(), KEY)
    await supervisor.start(spec.model_copy(update={"secret_env": {}}))
    await until(lambda: supervisor.states()["cpu/tiny"].status == "quarantined")
    assert "LLAMA_API_KEY is not set" in (supervisor.states()["cpu/tiny"].reason or "")


async def test_sigterm_ends_it_at_once(supervisor: Supervisor, tmp_path: Path) -> None:
    async with serving(supervisor, launch(write_tiny_llama(tmp_path / "m.gguf"))) as engine:
        os.kill(engine.pid, 15)
        await until(lambda: not alive(engine.pid), 10)
