"""The engine process of every runtime but llama.cpp: a small HTTP server around one model.

`python -m workers.engine.app PORT LAUNCH`, LAUNCH being an `EngineLaunch` in JSON; the key that requests must carry
comes in `LLAMA_API_KEY`. `/health` answers 503 while the model is loading and 200 once it serves. SIGTERM ends it at
once: nothing here needs saving. Why a model could not be loaded stands in the last line on standard error; exit code 78
means that another try would end the same way.
"""

import asyncio
import hmac
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import orjson
from aiohttp import web
from pydantic import ValidationError

from infra.errors import CoderAIError, EngineFailed, InvalidRequest, LoadFailed, NotInstalled, PayloadTooLarge
from infra.settings import handed_over
from infra.supervisor.types import EX_CONFIG
from infra.types import RunId
from workers.engine.forms import read_ask
from workers.engine.runtimes import make_runtime
from workers.engine.runtimes.progress import Progress
from workers.engine.runtimes.protocol import Abandoned, Ask, Handler, Reply, Runtime
from workers.extras import not_installed
from workers.wire import (
    LLAMA_TOKEN_VARIABLE,
    NOT_INSTALLED,
    PART_HEADER,
    RUN_HEADER,
    STEP_HEADER,
    EngineLaunch,
    Mark,
    Working,
    WorkingList,
)

log = logging.getLogger("workers.engine")

_STATUS: tuple[tuple[type[CoderAIError], int], ...] = (
    (PayloadTooLarge, 413),
    (NotInstalled, 501),
    (InvalidRequest, 400),
)
_JSON = {"Content-Type": "application/json"}
_PART = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})", re.ASCII)
_MOST_WAITING = 64
"""Requests beyond the slots: the front gives out slots, so there is hardly ever one."""


class EngineApp:
    """Serves one runtime. At most `slots` requests are worked on at once."""

    def __init__(self, runtime: Runtime, launch: EngineLaunch, key: str) -> None:
        self._runtime = runtime
        self._launch = launch
        self._authorization = f"Bearer {key}".encode()
        self._routes: Mapping[str, Handler] = {}
        self._threads = ThreadPoolExecutor(launch.slots, "runtime")
        self._slots = asyncio.Semaphore(launch.slots)
        self._waiting = 0
        self._working: dict[Progress, Mark | None] = {}
        self._ready = False

    async def load(self) -> None:
        """Load the model; from then on requests are answered.

        Raises:
            LoadFailed: it cannot be loaded.
        NotInstalled: a library that it needs cannot be imported.
        """
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._runtime.load, self._launch)
        except ImportError as error:  # of a library that only this very model needs
            raise not_installed(self._launch.entry.format, error) from error
        self._routes = self._runtime.routes()
        self._ready = True

    def application(self) -> web.Application:
        """The HTTP side."""
        app = web.Application(client_max_size=0)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/progress", self._progress)
        app.router.add_post("/v1/{path:.+}", self._post)
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        if self._ready:
            return web.json_response({"status": "ok"})
        return _failed("the model is still loading", 503, kind="unavailable_error")

    async def _models(self, request: web.Request) -> web.Response:
        if not self._allowed(request):
            return _failed("Invalid API Key", 401)
        model = {"id": self._launch.entry.name, "object": "model", "created": 0, "owned_by": "coderai"}
        return web.json_response({"object": "list", "data": [model]})

    async def _progress(self, request: web.Request) -> web.Response:
        """What is being worked on, or waits for its turn, and how far it is."""
        if not self._allowed(request):
            return _failed("Invalid API Key", 401)
        told = WorkingList(data=tuple(_working(progress, mark) for progress, mark in self._working.items()))
        return web.Response(text=told.model_dump_json(), headers=_JSON)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        if not self._allowed(request):
            return _failed("Invalid API Key", 401)
        if not self._ready:
            return _failed("the model is still loading", 503, kind="unavailable_error")
        handler = self._routes.get(f"/{request.match_info['path']}")
        if handler is None:
            return _failed(f"this engine does not serve {request.path}", 404, code="unknown_url")
        if self._waiting >= _MOST_WAITING:
            return _failed("this engine has too many requests waiting", 503, kind="unavailable_error")
        gone = threading.Event()
        try:
            ask = await read_ask(request, gone)
            self._working[ask.progress] = _mark(request)
            try:
                return await self._answer(request, handler, ask)
            finally:
                del self._working[ask.progress]
        except CoderAIError as error:
            return _refused(error)
        finally:  # also when the client has left, which cancels this task: its handler then stops by itself
            gone.set()

    async def _answer(self, request: web.Request, handler: Handler, ask: Ask) -> web.StreamResponse:
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        work = asyncio.get_running_loop().run_in_executor(self._threads, _call, handler, ask)
        try:
            reply = await asyncio.shield(work)
            if isinstance(reply.body, bytes):
                return web.Response(body=reply.body, headers={"Content-Type": reply.media_type})
            return await self._stream(request, reply.body, reply.media_type)
        finally:  # the slot is free when the thread is, however soon the client has left
            work.add_done_callback(self._let_go)

    def _let_go(self, work: "asyncio.Future[Reply]") -> None:
        self._slots.release()
        work.exception()  # seen, should nobody wait for it any more

    async def _stream(self, request: web.Request, pieces: Iterator[bytes], media_type: str) -> web.StreamResponse:
        """Send pieces as they are made. The first is made before the head is sent: an error can still be told."""
        loop = asyncio.get_running_loop()
        piece = await loop.run_in_executor(self._threads, _next, pieces)
        response = web.StreamResponse(headers={"Content-Type": media_type})
        await response.prepare(request)
        try:
            while piece is not None:
                await response.write(piece)
                piece = await loop.run_in_executor(self._threads, _next, pieces)
        except CoderAIError as error:
            log.warning("an answer broke off: %s", error.message)
            if request.transport is not None:
                request.transport.abort()  # half an answer must not look like a whole one
            raise asyncio.CancelledError from error
        await response.write_eof()
        return response

    def _allowed(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._authorization)


def _mark(request: web.Request) -> Mark | None:
    """Whose work a request is, where it says so."""
    run, step = request.headers.get(RUN_HEADER), request.headers.get(STEP_HEADER)
    part = _PART.fullmatch(request.headers.get(PART_HEADER, "1/1"))
    if not run or not step or part is None:
        return None
    return Mark(RunId(run), step, int(part[1]) - 1, int(part[2]))


def _working(progress: Progress, mark: Mark | None) -> Working:
    reached = progress.reached()
    return Working(
        run=mark.run if mark else None,
        step=mark.step if mark else None,
        before=mark.before if mark else 0,
        requests=mark.requests if mark else 1,
        phase=reached.phase,
        current=reached.step,
        total=reached.total,
        per_s=reached.per_s,
        elapsed_s=reached.elapsed_s,
    )


def _call(handler: Handler, ask: Ask) -> Reply:
    """The handler's reply; an error that is none of ours becomes one.

    Raises:
        CoderAIError: what went wrong.
    """
    try:
        ask.check()
        return handler(ask)
    except Abandoned:
        return Reply(b"")
    except CoderAIError:
        raise
    except Exception as error:
        log.exception("a request failed")
        raise EngineFailed(f"the runtime failed ({type(error).__name__}); its log has the details") from error


def _next(pieces: Iterator[bytes]) -> bytes | None:
    """The next piece, None after the last.

    Raises:
        CoderAIError: it could not be made.
    """
    try:
        return next(pieces, None)
    except Abandoned:
        return None
    except CoderAIError:
        raise
    except Exception as error:
        log.exception("a request failed")
        raise EngineFailed(f"the runtime failed ({type(error).__name__}); its log has the details") from error


def _refused(error: CoderAIError) -> web.Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return _failed(error.message, status, param=error.param, code=error.code)


def _failed(
    message: str, status: int, *, kind: str = "", param: str | None = None, code: str | None = None
) -> web.Response:
    """An error in OpenAI's shape."""
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    return web.Response(status=status, body=orjson.dumps({"error": error}), headers=_JSON)


async def serve(port: int, launch: EngineLaunch, key: str) -> None:
    """Answer on loopback until the process is ended.

    Raises:
        LoadFailed, NotInstalled: the model cannot be loaded.
    """
    engine = EngineApp(make_runtime(launch.entry), launch, key)
    runner = web.AppRunner(engine.application(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await engine.load()
    sys.stderr.write(f"serving {launch.entry.name} on http://127.0.0.1:{port}\n")
    sys.stderr.flush()
    await asyncio.Event().wait()


def _fail(code: int, sentence: str) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    sys.stderr.flush()
    return code


def main(arguments: list[str]) -> int:
    """Serve until killed; returns an exit code only when that was not to be."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        port, launch = int(arguments[0]), EngineLaunch.model_validate_json(arguments[1])
    except (IndexError, ValueError, ValidationError) as error:
        return _fail(EX_CONFIG, f"usage: python -m workers.engine.app PORT LAUNCH ({type(error).__name__})")
    key = handed_over(LLAMA_TOKEN_VARIABLE)
    if not key:
        return _fail(EX_CONFIG, f"{LLAMA_TOKEN_VARIABLE} is not set: an engine without a key would serve anybody")
    try:
        asyncio.run(serve(port, launch, key))
    except NotInstalled as error:
        return _fail(EX_CONFIG, f"{NOT_INSTALLED}{error.message}")
    except LoadFailed as error:
        return _fail(1, f"cannot load {launch.entry.name}: {error.message}")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread of the runtime's may still be at work: nobody waits for it
