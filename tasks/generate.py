"""Asks an engine and gives its answer: streamed through as it comes, whole as bytes, or read for a later step."""

import aiohttp
import orjson

from infra.errors import EngineFailed
from infra.types import Json
from tasks.refusals import refusal
from tasks.types import TaskCall, TaskResult, Usage

_TAIL_BYTES = 4096


async def generate(call: TaskCall) -> TaskResult:
    """Send `inputs["request"]` to `inputs["path"]` below the engine's `/v1`.

    With a channel the answer's bytes go to the client as they come and the result is empty, else the result is the
    answer's body.

    Raises:
        EngineFailed: the engine died, broke off or refused for reasons of its own.
        UpstreamRefused: the request is wrong, in the engine's eyes.
    """
    path, request = call.inputs["path"], call.inputs["request"]
    assert isinstance(path, str) and isinstance(request, dict)
    response = await _ask(call, path, request)
    try:
        if call.channel is None:
            body = await response.read()
            return TaskResult(body, _usage(body))
        return TaskResult(b"", await _pass_through(call, response))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise EngineFailed(f"{call.leased().id} broke off its answer: {error or type(error).__name__}") from error
    finally:
        response.release() if response.content.at_eof() else response.close()


async def ask(call: TaskCall, path: str, request: dict[str, Json]) -> tuple[dict[str, Json], Usage | None]:
    """One question to the engine, its answer as an object.

    Raises:
        EngineFailed, UpstreamRefused: as `generate`.
    """
    response = await _ask(call, path, request)
    try:
        body = await response.read()
        answer = orjson.loads(body)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise EngineFailed(f"{call.leased().id} broke off its answer: {error or type(error).__name__}") from error
    except orjson.JSONDecodeError as error:
        raise EngineFailed(f"{call.leased().id} did not answer in JSON") from error
    finally:
        response.release() if response.content.at_eof() else response.close()
    if not isinstance(answer, dict):
        raise EngineFailed(f"{call.leased().id} did not answer with a JSON object")
    return answer, _usage(body)


async def _ask(call: TaskCall, path: str, request: dict[str, Json]) -> aiohttp.ClientResponse:
    engine = call.leased()
    named = {**request, "model": engine.entry.served_model or engine.entry.name}
    response = await call.transport.post(engine, path, orjson.dumps(named))
    if response.status == 200:
        return response
    try:
        body = await response.content.read(65536)
    except (aiohttp.ClientError, TimeoutError, OSError):
        body = b""
    finally:
        response.close()
    raise refusal(engine.id, response.status, body)


async def _pass_through(call: TaskCall, response: aiohttp.ClientResponse) -> Usage | None:
    """Every piece as it comes; the last ones are kept for the usage they carry."""
    channel = call.channel
    assert channel is not None
    tail = b""
    async for piece in response.content.iter_any():
        tail = piece if len(piece) >= _TAIL_BYTES else tail[-_TAIL_BYTES:] + piece
        await channel.write(piece)
    return _usage(tail)


def _usage(text: bytes) -> Usage | None:
    return None
