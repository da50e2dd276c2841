"""The engine process: its key, its health, its errors, its slots; as an application, and as a process."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from infra.errors import EngineFailed, InvalidRequest, NotInstalled, PayloadTooLarge
from tests.fakes import make_entry
from tests.ports import free_port
from tests.workers.engine.launches import launch_of
from workers.engine.app import EngineApp, main
from workers.engine.runtimes.protocol import Abandoned, Ask, Handler, Reply
from workers.types import Capability, ModelFormat
from workers.wire import EngineLaunch

pytestmark = pytest.mark.enable_socket
KEY = "engine-key"
ENTRY = make_entry(format=ModelFormat.WHISPER, capabilities=(Capability.STT,))


class FakeRuntime:
    """Answers with what it got; some paths misbehave in a way of their own."""

    def __init__(self) -> None:
        self.loading = threading.Event()
        self.loaded = threading.Event()
        self.at_work = 0
        self.most_at_work = 0
        self.abandoned = threading.Event()
        self.pieces: list[str] = []

    def load(self, _launch: EngineLaunch) -> None:
        self.loading.set()
        self.loaded.wait(10)

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/echo": lambda ask: Reply(b'{"files":%d,"fields":%d}' % (len(ask.files), len(ask.body))),
            "/bad": self._raising(InvalidRequest("'x' is wrong", param="x", code="bad_x")),
            "/large": self._raising(PayloadTooLarge("too large")),
            "/broken": self._raising(EngineFailed("it has had enough")),
            "/bug": self._raising(KeyError("a secret prompt")),
            "/slow": self._slow,
            "/stream": lambda _ask: Reply(iter([b"one ", b"two"]), "audio/mpeg"),
            "/stream-bad": lambda _ask: Reply(self._failing(0), "audio/mpeg"),
            "/stream-breaks": lambda _ask: Reply(self._failing(1), "audio/mpeg"),
            "/stream-slow": lambda ask: Reply(self._told(ask), "audio/mpeg"),
        }

    def _raising(self, error: Exception) -> Callable[[Ask], Reply]:
        def answer(_ask: Ask) -> Reply:
            raise error

        return answer

    def _failing(self, after: int) -> Iterator[bytes]:
        yield from [b"x"] * after
        raise InvalidRequest("no such voice")

    def _told(self, ask: Ask) -> Iterator[bytes]:
        for _ in range(3):
            self.pieces.append(str(ask.body["name"]))
            time.sleep(0.02)
            yield b"x"

    def _slow(self, ask: Ask) -> Reply:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        ask.progress.tell("slowly", 1, 40)
        try:
            for _ in range(40):
                ask.check()
                time.sleep(0.01)
        except Abandoned:
            self.abandoned.set()
            raise
        finally:
            self.at_work -= 1
        return Reply(b"{}")


class Bench:
    """The application on a port, and a client with its key."""

    def __init__(self, runtime: FakeRuntime, url: str, session: aiohttp.ClientSession) -> None:
        self.runtime = runtime
        self.url = url
        self.session = session

    async def post(self, path: str, key: str = KEY, **body: object) -> tuple[int, dict[str, object]]:
        headers = {"Authorization": f"Bearer {key}"}
        async with self.session.post(f"{self.url}{path}", json=body, headers=headers) as answer:
            found: dict[str, object] = await answer.json()
            return answer.status, found

    async def health(self) -> int:
        async with self.session.get(f"{self.url}/health") as answer:
            return answer.status


@contextlib.asynccontextmanager
async def bench(*, slots: int = 2, loaded: bool = True) -> AsyncIterator[Bench]:
    runtime = FakeRuntime()
    app = EngineApp(runtime, launch_of(ENTRY, slots), KEY)
    runner = web.AppRunner(app.application(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    loading = asyncio.create_task(app.load())
    if loaded:
        runtime.loaded.set()
        await loading
    async with aiohttp.ClientSession() as session:
        yield Bench(runtime, f"http://127.0.0.1:{port}", session)
    runtime.loaded.set()
    await loading
    await runner.cleanup()


async def test_it_is_not_healthy_before_its_model_is_there() -> None:
    async with bench(loaded=False) as engine:
        assert await engine.health() == 503
        status, body = await engine.post("/v1/echo")
        assert status == 503
        assert "loading" in str(body)
        engine.runtime.loaded.set()
        for _ in range(100):
            if await engine.health() == 200:
                break
            await asyncio.sleep(0.01)
        assert (await engine.post("/v1/echo"))[0] == 200


async def test_nobody_without_the_key() -> None:
    async with bench() as engine:
        for key in ("", "wrong", KEY + "x", "ä"):
            assert (await engine.post("/v1/echo", key=key))[0] == 401
        async with engine.session.get(f"{engine.url}/v1/models") as answer:
            assert answer.status == 401


async def test_json_and_forms_reach_the_runtime() -> None:
    async with bench() as engine:
        assert await engine.post("/v1/echo", a=1, b=2) == (200, {"files": 0, "fields": 2})
        form = aiohttp.FormData()
        form.add_field("language", "en")
        form.add_field("file", b"\x00\xff" * 1000, filename="a.wav")
        headers = {"Authorization": f"Bearer {KEY}"}
        async with engine.session.post(f"{engine.url}/v1/echo", data=form, headers=headers) as answer:
            assert await answer.json() == {"files": 1, "fields": 1}


@pytest.mark.parametrize(
    ("path", "status", "kind", "words"),
    [
        ("/v1/bad", 400, "invalid_request_error", "'x' is wrong"),
        ("/v1/large", 413, "invalid_request_error", "too large"),
        ("/v1/broken", 500, "server_error", "it has had enough"),
        ("/v1/bug", 500, "server_error", "the runtime failed (KeyError)"),
        ("/v1/elsewhere", 404, "invalid_request_error", "does not serve"),
        ("/v1/stream-bad", 400, "invalid_request_error", "no such voice"),
    ],
)
async def test_errors_have_openai_s_shape(path: str, status: int, kind: str, words: str) -> None:
    async with bench() as engine:
        got, body = await engine.post(path)
        error = body["error"]
        assert isinstance(error, dict)
        assert (got, error["type"]) == (status, kind)
        assert words in error["message"]
        assert "secret" not in str(body)
        assert await engine.health() == 200


async def test_a_stream_comes_as_it_is_made_and_half_of_one_is_no_answer() -> None:
    async with bench() as engine:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with engine.session.post(f"{engine.url}/v1/stream", json={}, headers=headers) as answer:
            assert (await answer.read(), answer.content_type) == (b"one two", "audio/mpeg")
        with pytest.raises(aiohttp.ClientError):
            async with engine.session.post(f"{engine.url}/v1/stream-breaks", json={}, headers=headers) as answer:
                await answer.read()
        assert await engine.health() == 200


async def test_no_more_at_once_than_it_has_slots() -> None:
    async with bench(slots=2) as engine:
        answers = await asyncio.gather(*(engine.post("/v1/slow") for _ in range(5)))
        assert [status for status, _body in answers] == [200] * 5
        assert engine.runtime.most_at_work == 2


async def test_a_stream_has_its_slot_to_its_end() -> None:
    async with bench(slots=1) as one:
        headers = {"Authorization": f"Bearer {KEY}"}

        async def read(name: str) -> bytes:
            async with one.session.post(f"{one.url}/v1/stream-slow", json={"name": name}, headers=headers) as answer:
                return await answer.read()

        assert list(await asyncio.gather(read("a"), read("b"))) == [b"xxx", b"xxx"]
        assert one.runtime.pieces in (["a"] * 3 + ["b"] * 3, ["b"] * 3 + ["a"] * 3)
        for _ in range(3):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(read("left"), 0.03)
        assert await asyncio.wait_for(read("c"), 5) == b"xxx"


async def test_what_it_works_on_and_whose_work_it_is() -> None:
    async with bench(slots=1) as engine:
        headers = {"Authorization": f"Bearer {KEY}"}
        marked = headers | {"X-Coderai-Run": "run", "X-Coderai-Step": "part-1", "X-Coderai-Part": "3/4"}

        async def told() -> list[dict[str, object]]:
            async with engine.session.get(f"{engine.url}/v1/progress", headers=headers) as answer:
                found: list[dict[str, object]] = (await answer.json())["data"]
                return found

        assert await told() == []
        async with engine.session.get(f"{engine.url}/v1/progress") as answer:
            assert answer.status == 401
        first = asyncio.create_task(engine.session.post(f"{engine.url}/v1/slow", json={}, headers=marked))
        while not engine.runtime.at_work:
            await asyncio.sleep(0.005)
        second = asyncio.create_task(engine.post("/v1/slow"))
        while len(rows := await told()) < 2:
            await asyncio.sleep(0.005)
        working, waiting = rows
        for row in rows:
            assert isinstance(row.pop("elapsed_s"), float)
        assert working == {
            "run": "run",
            "step": "part-1",
            "before": 2,
            "requests": 4,
            "phase": "slowly",
            "current": 1,
            "total": 40,
            "per_s": 0.0,
        }
        assert (waiting["run"], waiting["phase"], waiting["total"]) == (None, "waiting", 0)
        await asyncio.gather(first, second)
        assert await told() == []


async def test_a_client_that_leaves_ends_its_work() -> None:
    async with bench(slots=1) as engine:
        asking = asyncio.create_task(engine.post("/v1/slow"))
        while not engine.runtime.at_work:
            await asyncio.sleep(0.005)
        asking.cancel()
        assert await asyncio.to_thread(engine.runtime.abandoned.wait, 2)
        assert (await engine.post("/v1/slow"))[0] == 200


async def test_a_library_that_is_missing_when_the_model_is_loaded_is_named() -> None:
    class Lacking(FakeRuntime):
        def load(self, _launch: EngineLaunch) -> None:
            raise ModuleNotFoundError("No module named 'ftfy'")

    entry = ENTRY.model_copy(update={"format": ModelFormat.DIFFUSERS})
    with pytest.raises(NotInstalled, match=r"coderai\[torch\].*ftfy"):
        await EngineApp(Lacking(), launch_of(entry), KEY).load()


def test_what_it_needs_to_start(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main([]) == main(["80", "{}"]) == 78
        monkeypatch.delenv("LLAMA_API_KEY", raising=False)
        assert main(["80", launch_of(ENTRY).model_dump_json()]) == 78
        assert "an engine without a key" in capsys.readouterr().err
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_process_that_cannot_load_says_why(tmp_path: Path) -> None:
    entry = ENTRY.model_copy(update={"path": tmp_path})
    done = subprocess.run(
        [sys.executable, "-m", "workers.engine.app", str(free_port()), launch_of(entry).model_dump_json()],
        env={**os.environ, "LLAMA_API_KEY": KEY},  # noqa: TID251
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(f"error: cannot load m: {tmp_path} is no folder")


def test_a_process_without_its_library_says_so_and_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    entry = make_entry(format=ModelFormat.SENTENCE_TRANSFORMERS, capabilities=(Capability.EMBEDDINGS,), path=tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "workers.engine.app", str(free_port()), launch_of(entry).model_dump_json()],
        env={**os.environ, "LLAMA_API_KEY": KEY, "PYTHONPATH": str(tmp_path)},  # noqa: TID251
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 78
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: not installed: sentence-transformers models need the extra 'torch'")
    assert "pip install 'coderai[torch]'" in last
