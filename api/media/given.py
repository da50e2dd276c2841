"""A file as a client gives it in JSON: base64, a data URL, or the address of something on the public internet."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import aiohttp
from yarl import URL

from infra.egress import Egress
from infra.errors import Forbidden, InvalidRequest, PayloadTooLarge
from infra.files import CHUNK_BYTES
from infra.types import Json

FETCH_S: Final = 60.0
"""Seconds that fetching one address may take."""
_FIELDS: Final = frozenset({"data", "url", "filename"})
_NAME_CHARS: Final = 255
Take = Callable[[bytes], Awaitable[None]]


class Given(NamedTuple):
    """One file that came with a request: `name` is its sender's word for it, `url` where it is to be had from."""

    name: str
    data: bytes = b""
    url: str | None = None


def read_given(value: Json, param: str, number: int) -> Given:
    """The file that `value` is: a text, or `{data | url, filename}`; `number` names one that has no name.

    Raises:
        InvalidRequest: it is neither, or no base64.
    """
    name = f"file-{number}"
    if isinstance(value, dict):
        if not value.keys() <= _FIELDS or ("data" in value) == ("url" in value):
            raise InvalidRequest(
                f"{param} is base64, a URL, or an object with `data` or `url`, and `filename`", param=param
            )
        given_name = value.get("filename")
        name = clean_name(given_name if isinstance(given_name, str) else "", number)
        value = value["data"] if "data" in value else value["url"]
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{param} must be a text: base64, a data URL, or an http(s) URL", param=param)
    if value[:8].lower().startswith(("http://", "https://")):
        return Given(clean_name(_last_part(value, param), number) if name == f"file-{number}" else name, url=value)
    return Given(name, _decoded(value, param))


def clean_name(name: str, number: int) -> str:
    """A name fit to be shown: the last part of what may be a path, without what cannot be seen."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    shown = "".join(letter for letter in last if letter.isprintable())[:_NAME_CHARS].strip()
    return shown or f"file-{number}"


async def fetch(url: str, egress: Egress, max_bytes: int, *, param: str) -> bytes:
    """What is at `url`; `param` is the request's field that named it.

    Raises:
        InvalidRequest, Forbidden: it is no address of the public internet, or nothing comes from there.
        PayloadTooLarge: it is more than `max_bytes`.
    """
    data = bytearray()

    async def take(piece: bytes) -> None:
        data.extend(piece)
        if len(data) > max_bytes:
            raise PayloadTooLarge(f"the file at {URL(url).host} is over {max_bytes >> 20} MiB", param=param)

    await fetch_pieces(url, egress, take, FETCH_S, param=param)
    return bytes(data)


async def fetch_pieces(url: str, egress: Egress, take: Take, within_s: float, *, param: str) -> None:
    """Pass on what is at `url`, in pieces; `param` is the request's field that named it.

    Raises:
        InvalidRequest, Forbidden: it is no address of the public internet, or nothing comes from there in time; and
            whatever `take` raises.
    """
    try:
        host = egress.check_url(url).host
        async with (
            asyncio.timeout(within_s),
            egress.session() as session,
            egress.fetch(session, url, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            _require_ok(answer.status, host)
            async for piece in answer.content.iter_chunked(CHUNK_BYTES):
                await take(piece)
    except Forbidden as error:
        raise Forbidden(error.message, param=param, code="forbidden_address") from error
    except InvalidRequest as error:
        error.param = param
        raise
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        raise InvalidRequest(f"nothing could be fetched from {host}: {_reason(error)}", param=param) from error


def _require_ok(status: int, host: str | None) -> None:
    if status != 200:
        raise InvalidRequest(f"{host} answers {status} for the file's URL")


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the name of the host is unknown"
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.ClientConnectionError | ConnectionError):
        return "no connection, or it broke off"
    return "it did not answer in HTTP"


def _last_part(url: str, param: str) -> str:
    try:
        return PurePosixPath(URL(url).path).name
    except ValueError:
        raise InvalidRequest(f"{param} is no URL that can be opened", param=param) from None


def _decoded(text: str, param: str) -> bytes:
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise InvalidRequest(f"{param} is a data URL without base64: `data:TYPE;base64,…`", param=param)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{param} is neither an http(s) URL nor base64", param=param) from error
