"""Files that a far service makes: one a request, in base64 in its answer, or at an address that the answer names.

What comes back is a stranger's: it is bounded, and an address in it is opened by the rules for those of clients, except
at the service's own origin, which the install's owner has named.
"""

import asyncio
import base64
import binascii
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol

import aiohttp
import orjson
from yarl import URL

from infra.egress import Egress, parse_url
from infra.errors import EngineFailed, Forbidden, InvalidRequest
from infra.pictures import measure
from infra.types import Json
from tasks.refusals import beginning, refusal
from tasks.types import TaskCall
from workers.connection import BrokenOff
from workers.live import Engine
from workers.transport import ANSWER_MOST_BYTES, FilePart, whole_body

FETCH_S: Final = 600.0
"""Seconds that fetching one file may take: it has been made, and perhaps paid for. Nothing may come for `_SILENT_S`."""
_SILENT_S: Final = 30.0
_PIECE_BYTES: Final = 1 << 16
_PLAIN: Final = {"Accept-Encoding": "identity"}
_UNTOLD: Final = "application/octet-stream"


class Answer(Protocol):
    """A service's answer, its head there."""

    @property
    def status(self) -> int:
        """HTTP's."""
        ...

    async def piece(self) -> bytes:
        """What has come of the body; nothing only at its end."""
        ...


class FarFile(NamedTuple):
    """What the service has made, and what else its answer says of it."""

    data: bytes
    told: dict[str, Json]

    @property
    def seed(self) -> dict[str, Json]:
        """`{seed}`, if it says which one it has taken."""
        seed = self.told.get("seed")
        return {"seed": seed} if isinstance(seed, int) and not isinstance(seed, bool) else {}


async def make_far(
    call: TaskCall, path: str, asked: Mapping[str, Json], files: Mapping[str, bytes], form: str
) -> FarFile:
    """The one file that the service makes of `asked`; with `files`, by their fields, it is sent as a form.

    `form` is the `response_format` that has the file in the answer, and the field that it is in then. OpenAI's later
    models answer so always and refuse to be asked for it: they are asked once more, without.

    Raises:
        EngineFailed: the service died, broke off, or its answer has no such file.
        UpstreamRefused: the request is wrong, in the service's eyes.
    """
    engine = call.leased()
    body = {**asked, "n": 1, "model": engine.entry.served_model or engine.entry.name}
    status, said = await _send(call, path, {**body, "response_format": form}, files)
    if status in (400, 422) and b"response_format" in said:
        status, said = await _send(call, path, body, files)
    if status != 200:
        raise refusal(engine.id, path, status, said, ours=False)
    told = await asyncio.to_thread(_told, engine, said)
    inline, address = told.pop(form, None), told.pop("url", None)
    if isinstance(inline, str) and inline:
        data = await asyncio.to_thread(_decoded, engine, inline)
    elif isinstance(address, str) and address:
        data = await _fetched(engine, address)
    else:
        raise EngineFailed(f"{engine.id} answered without a file: there is neither {form} nor url in it")
    return FarFile(data, told)


async def _send(call: TaskCall, path: str, body: dict[str, Json], files: Mapping[str, bytes]) -> tuple[int, bytes]:
    if not files:
        return await _post(call, path, orjson.dumps(body))
    engine, fields = call.leased(), [(name, _text(value)) for name, value in body.items()]
    async with call.transport.form(engine, path, fields, *(_part(*file) for file in files.items())) as answer:
        return answer.status, await _read(engine, answer)


async def _post(call: TaskCall, path: str, body: bytes) -> tuple[int, bytes]:
    engine = call.leased()
    connection = await call.transport.post(engine, path, body, call.mark)
    try:
        return connection.status, await _read(engine, connection)
    except BrokenOff as error:
        raise EngineFailed(f"{engine.id} broke off its answer: {error}") from error
    finally:
        connection.let_go()


async def _read(engine: Engine, answer: Answer) -> bytes:
    """The body; of a refusal the beginning is enough."""
    return await (whole_body(engine, answer.piece) if answer.status == 200 else beginning(answer.piece))


def _text(value: Json) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _part(field: str, data: bytes) -> FilePart:
    """A picture of a form: services go by its name and its type."""
    found = measure(data)
    media_type = found.media_type if found is not None else _UNTOLD
    return FilePart(field, f"{field}.{media_type.rpartition('/')[2]}", media_type, io.BytesIO(data))


def _told(engine: Engine, said: bytes) -> dict[str, Json]:
    """What an answer says of its first file."""
    try:
        answer = orjson.loads(said)
    except orjson.JSONDecodeError as error:
        raise EngineFailed(f"{engine.id} answered with something that is no JSON") from error
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not data or not isinstance(data[0], dict):
        raise EngineFailed(f"{engine.id} answered without a file: there is no list `data` of objects in it")
    return data[0]


def _decoded(engine: Engine, inline: str) -> bytes:
    try:
        return base64.b64decode(inline, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EngineFailed(f"{engine.id} answered with a file that is no base64") from error


async def _fetched(engine: Engine, address: str) -> bytes:
    """What is at an address that the service names."""
    data = bytearray()
    try:
        async with asyncio.timeout(FETCH_S), _opened(engine, address) as answer:
            if answer.status != 200:
                raise EngineFailed(f"{engine.id} made a file that cannot be had: its address answers {answer.status}")
            async for piece in answer.content.iter_chunked(_PIECE_BYTES):
                data += piece
                if len(data) > ANSWER_MOST_BYTES:
                    raise EngineFailed(f"{engine.id} made a file of more than {ANSWER_MOST_BYTES >> 20} MiB")
    except (Forbidden, InvalidRequest) as error:
        raise EngineFailed(f"{engine.id} made a file at an address that is not opened: {error.message}") from error
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise EngineFailed(f"{engine.id} made a file that cannot be had: {type(error).__name__}") from error
    return bytes(data)


@asynccontextmanager
async def _opened(engine: Engine, address: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer there. The service's own origin may be private; nothing is followed from there."""
    base = URL(engine.base_url)
    url = base.join(parse_url(address))
    own = url.scheme in ("http", "https") and url.origin() == base.origin()
    egress = Egress(allow_private=own)
    async with egress.session(read_s=_SILENT_S) as session:
        if own:
            async with session.get(egress.check_url(url), headers=_PLAIN, allow_redirects=False) as answer:
                yield answer
        else:
            async with egress.fetch(session, str(url), headers=_PLAIN) as answer:
                yield answer
