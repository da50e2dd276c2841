"""Files that models have made, as their client gets them: in base64 in the answer itself, or each by an address.

A run's last step names the files by reference (`tasks.made`). What the client gets is made of that whenever it asks:
with its answer, and for as long as a job's answer is kept; an address is good from then on.
"""

import asyncio
import base64
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from api.asgi import Scope, headers_by_name
from api.file_desk import FileDesk
from infra.blobs import Blobs
from infra.errors import NotFound, PayloadGone
from infra.types import Json, KeyName
from tasks.made import FILES_TYPE
from tasks.types import TaskResult

JSON: Final = "application/json"
_INLINE: Final = ("b64_json", "b64_mp4")
"""Answers that hold the files; the field of each is called so, too."""
_OURS: Final = frozenset({"blob", "media_type", "suffix"})
_HOST: Final = re.compile(r"[A-Za-z0-9._~\[\]:-]{1,255}", re.ASCII)


class Receiver(NamedTuple):
    """Whose files they will be, and where that client reaches us (`http://host`)."""

    key: KeyName
    origin: str


class MadeFiles:
    """Turns such answers. `stores` are where the files lie that steps have made."""

    def __init__(self, desk: FileDesk, stores: Sequence[Blobs]) -> None:
        self._desk = desk
        self._stores = stores

    async def turn_result(self, receiver: Receiver, result: TaskResult) -> TaskResult:
        """The result of a run's last step as its client gets it.

        Raises:
            PayloadGone, InvalidRequest, DiskFull: as `turn`.
        """
        assert isinstance(result.value, bytes)
        body, media_type = await self.turn(receiver, result.value, result.media_type)
        return result._replace(value=body, media_type=media_type)

    async def turn(self, receiver: Receiver, body: bytes, media_type: str) -> tuple[bytes, str]:
        """An answer as its client gets it, and its media type; one without files is returned as it is.

        Raises:
            PayloadGone: a file is not kept any more.
            InvalidRequest, DiskFull: there is no room for them among the client's files.
        """
        if media_type != FILES_TYPE:
            return body, media_type
        found = orjson.loads(body)
        form = found.pop("response_format")
        if form in _INLINE:
            return await asyncio.to_thread(self._inline, found, form), JSON
        found["data"] = await self._desk.run(partial(self._addressed, receiver, found["data"]))
        return orjson.dumps(found), JSON

    def _inline(self, found: dict[str, Any], form: str) -> bytes:
        """The answer with its files in it, which may be hundreds of MiB."""
        shown = [{form: base64.b64encode(self._content(file)).decode(), **_rest(file)} for file in found["data"]]
        return orjson.dumps(found | {"data": shown})

    def _addressed(self, receiver: Receiver, data: Sequence[dict[str, Json]]) -> list[Json]:
        generated = self._desk.generated
        shown: list[Json] = []
        for file in data:
            kind, media_type = str(file["media_type"]).partition("/")[0], str(file["media_type"])
            name = generated.again(receiver.key, str(file["blob"]))
            if name is None:
                name = generated.keep(receiver.key, self._content(file), kind, str(file["suffix"]), media_type)
            shown.append({"url": generated.signed_url(name, receiver.origin), **_rest(file)})
        return shown

    def _content(self, file: dict[str, Json]) -> bytes:
        for store in self._stores:
            try:
                return store.get(str(file["blob"]))
            except NotFound:
                continue
        raise PayloadGone("what this request has made is not kept any more: send the request anew")


def origin_of(scope: Scope) -> str:
    """Where this client reaches us, by its own word; empty where it says nothing usable, for relative addresses."""
    named = headers_by_name(scope["headers"])
    host = named.get(b"host", b"").decode("latin-1")
    if not _HOST.fullmatch(host):
        return ""
    secure = scope["scheme"] == "https" or named.get(b"x-forwarded-proto") == b"https"
    return f"{'https' if secure else 'http'}://{host}"


def _rest(file: dict[str, Json]) -> dict[str, Json]:
    """What stands beside a file for its client."""
    return {name: value for name, value in file.items() if name not in _OURS}
