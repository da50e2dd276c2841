"""A real engine process, asked as it is and through the corrections."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from infra.types import EngineId, Json, ModelName, PoolId
from tasks.corrections.table import complete, mend
from tasks.corrections.types import Body, Traits, choices_of, inner, traits_of
from tests.ports import free_port
from workers.types import Capability, ModelEntry, ModelFormat, Pooling
from workers.wire import LLAMA_TOKEN_VARIABLE, EngineLaunch

KEY = "test-key"
SLOTS = 2


class Live:
    """One engine on a loopback port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.traits = Traits()

    def raw(self, path: str, body: Body | None) -> tuple[int, bytes]:
        """What the engine itself answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
            sent = None if body is None else orjson.dumps(body)
            connection.request("GET" if body is None else "POST", path, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def bare(self, path: str, body: Body) -> Body:
        """The engine's own answer, which must be one."""
        status, answer = self.raw(f"/v1{path}", body)
        assert status == 200, answer
        return _object(answer)

    def mended(self, path: str, body: Body) -> Body:
        """The answer after the corrections."""
        mending = mend(path, body, self.traits)
        status, answer = self.raw(f"/v1{path}", mending.body if mending else body)
        assert status == 200, answer
        return _object(mending.answer(answer) if mending else complete(answer))

    def mended_stream(self, path: str, body: Body, piece_bytes: int = 7) -> list[Body]:
        """The chunks of the stream after the corrections, which get it in small pieces."""
        streamed = {**body, "stream": True}
        mending = mend(path, streamed, self.traits)
        status, answer = self.raw(f"/v1{path}", mending.body if mending else streamed)
        assert status == 200, answer
        if mending:
            mender = mending.stream()
            pieces = [mender.feed(answer[at : at + piece_bytes]) for at in range(0, len(answer), piece_bytes)]
            answer = b"".join([*pieces, mender.finish()])
        return chunks(answer)


def chunks(stream: bytes) -> list[Body]:
    """The chunks of a stream that ends as OpenAI's do."""
    events = stream.strip().split(b"\n\n")
    assert events[-1] == b"data: [DONE]", events[-1]
    return [_object(event.removeprefix(b"data: ")) for event in events[:-1]]


def texts(parts: list[Body], index: int = 0) -> str:
    """The text of one choice of a stream."""
    found = [choice for part in parts for choice in choices_of(part) if choice.get("index") == index]
    return "".join(str(choice.get("text") or inner(choice, "delta").get("content") or "") for choice in found)


def first(answer: Body) -> Body:
    """The first choice."""
    return choices_of(answer)[0]


def message(answer: Body) -> Body:
    """The first choice's message."""
    return inner(first(answer), "message")


def user(text: str) -> list[Json]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


@contextlib.contextmanager
def running(path: Path, capabilities: tuple[Capability, ...], pooling: Pooling | None = None) -> Iterator[Live]:
    """The product's engine process on a model, until the block ends."""
    port = free_port()
    entry = ModelEntry(
        name=ModelName("tested"), format=ModelFormat.GGUF, capabilities=capabilities, path=path, pooling=pooling
    )
    launch = EngineLaunch(
        engine=EngineId("cpu/tested"),
        entry=entry,
        pool=PoolId("cpu"),
        backend="cpu",
        slots=SLOTS,
        context_tokens=512 if pooling else 2048,
        threads=1,
        cache_ram_mib=16,
    )
    environment = {**os.environ, LLAMA_TOKEN_VARIABLE: KEY}  # noqa: TID251  # a child's whole environment
    command = [sys.executable, "-m", "workers.engine.llama", str(port), launch.model_dump_json()]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        live = Live(port)
        _wait(live, process)
        live.traits = traits_of(_object(live.raw("/props", None)[1]))
        yield live
    finally:
        process.kill()
        process.wait()


def _wait(live: Live, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the engine ended with {process.returncode}"
        with contextlib.suppress(OSError):
            if live.raw("/health", None)[0] == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the engine did not come up")


def _object(data: bytes) -> Body:
    value = json.loads(data, object_pairs_hook=_named_once)
    assert isinstance(value, dict)
    return value


def _named_once(pairs: list[tuple[str, Json]]) -> Body:
    """An object; a field that stands there twice is read in one way by some clients and in another by others."""
    found = dict(pairs)
    assert len(found) == len(pairs), pairs
    return found
