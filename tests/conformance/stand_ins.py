"""Things that the suite takes for granted: its cases ask for `file_id`, delete a model of a name of their own, and send
`Example data` as a picture, which a mock server takes.

A real one has what was put there, and looks at what it gets. So the proxy makes the thing first, through the same API
(a model through the command line) and not counted, and asks for that instead; it sends a real recording or picture
where a case has none, and has a small one made of a picture: a large one takes minutes on a processor. Whether it can
be looked up, changed, deleted or understood is then the server's own doing.
"""

import asyncio
import re
from collections.abc import Mapping

import aiohttp
import orjson

from benchmarks.ours import COMMAND
from infra.types import Json
from tests.documents import drawn, encoded
from tests.sounds import wav

_FILE = re.compile(r"/v1/files/file_id(?=/|$)")
_UPLOAD = re.compile(r"/v1/uploads/upload_abc123(?=/|$)")
_RESPONSE = re.compile(r"/v1/responses/(resp_677efb5139a88190b512bc3fef8e535d|response_id)(?=/|$)")
_CHAT = re.compile(r"/v1/chat/completions/completion_id(?=/|$)")
_MODEL = re.compile(r"/v1/models/(.+)")
_BATCH = re.compile(r"/v1/batches/batch_id(?=/|$)")
_SOUNDS = re.compile(r"/v1/audio/(transcriptions|translations)$")
_IMAGES = re.compile(r"/v1/images/(edits|variations)$")
_CONTENT = b"Example data"
_LARGE, _SMALL = b"1024x1024", b"64x64"
_INPUT_FILE = "input_file_id"
_ASKED: dict[str, Json] = {"model": "model", "input": "Say hello.", "max_output_tokens": 1}
_CHATTED: dict[str, Json] = {"model": "model", "max_tokens": 1, "store": True}
_SAID: list[Json] = [{"role": "user", "content": "Say hello."}]
_SAID_BY_ASSISTANT: list[Json] = [{"role": "assistant", "content": "Hello."}]
"""OpenAI's client has one type for the messages of a request, and takes it for an assistant's."""
_SEEN_S = 10.0
"""Seconds in which a server sees that a model was added."""
_LONG = 200
"""Requests of a batch that is still under way when it is cancelled."""


class StandIns:
    """Makes them on the server, with the keys that the proxy has; models by the command line, which this process's
    environment leads to the server's install."""

    def __init__(self, session: aiohttp.ClientSession, server: str, key: str, admin_key: str) -> None:
        self._session = session
        self._server = server
        self._key, self._admin_key = key, admin_key
        self._headers = {"Authorization": f"Bearer {key}"}
        self._sound = wav(1.0)
        self._image = encoded(drawn(("otter",), width=64).resize((64, 64)).convert("RGBA"))

    async def key(self, method: str, path: str) -> str:
        """The key to ask with. What is deleted of models is one that its operator has added before, for only an
        operator may."""
        found = _MODEL.fullmatch(path) if method == "DELETE" else None
        if found is None:
            return self._key
        await self._add_model(found[1])
        return self._admin_key

    async def path(self, path: str, query: str) -> str:
        """The path to ask for in place of the one that a case asks for with this query."""
        if _FILE.match(path):
            return _FILE.sub(f"/v1/files/{await self._file(_CONTENT, 'user_data')}", path)
        if _UPLOAD.match(path):
            wanted = {"bytes": len(_CONTENT), "filename": "a", "mime_type": "text/plain", "purpose": "user_data"}
            return _UPLOAD.sub(f"/v1/uploads/{await self._made('/v1/uploads', aiohttp.JsonPayload(wanted))}", path)
        if _RESPONSE.match(path):
            # only a response that is made in the background can be cancelled or followed
            background = path.endswith("/cancel") or "stream=true" in query
            asked = aiohttp.JsonPayload(_ASKED | {"background": background})
            return _RESPONSE.sub(f"/v1/responses/{await self._made('/v1/responses', asked)}", path)
        if _CHAT.match(path):
            messages = _SAID_BY_ASSISTANT if path.endswith("/messages") else _SAID
            asked = aiohttp.JsonPayload(_CHATTED | {"messages": messages})
            return _CHAT.sub(f"/v1/chat/completions/{await self._made('/v1/chat/completions', asked)}", path)
        if _BATCH.match(path):
            return _BATCH.sub(f"/v1/batches/{await self._batch(_LONG if path.endswith('/cancel') else 1)}", path)
        return path

    async def body(self, path: str, body: bytes) -> bytes:
        """The body to send to `path` (as the case has it) in place of the case's own."""
        if _SOUNDS.search(path):
            return body.replace(_CONTENT, self._sound)
        if _IMAGES.search(path):
            return body.replace(_CONTENT, self._image).replace(_LARGE, _SMALL)
        if path == "/v1/batches" and body:
            asked = orjson.loads(body)
            if asked.get(_INPUT_FILE) == _INPUT_FILE:
                return orjson.dumps(asked | {_INPUT_FILE: await self._batch_file(1)})
        return body

    async def _add_model(self, name: str) -> None:
        """Add a far model of this name, and wait until the server knows it."""
        argv = ("models", "add", name, "--service-url", self._server, "--capability", "chat")
        adding = await asyncio.create_subprocess_exec(COMMAND, *argv, stderr=asyncio.subprocess.PIPE)
        _, said = await adding.communicate()
        if adding.returncode:
            raise RuntimeError(f"the model {name} was not added: {said.decode()}")
        async with asyncio.timeout(_SEEN_S):
            while True:
                async with self._session.get(f"{self._server}/v1/models/{name}", headers=self._headers) as answer:
                    if answer.status == 200:
                        return
                await asyncio.sleep(0.1)

    async def _batch(self, requests: int) -> str:
        wanted = {
            "completion_window": "24h",
            "endpoint": "/v1/responses",
            _INPUT_FILE: await self._batch_file(requests),
        }
        return await self._made("/v1/batches", aiohttp.JsonPayload(wanted))

    async def _batch_file(self, requests: int) -> str:
        line: Mapping[str, Json] = {"method": "POST", "url": "/v1/responses", "body": _ASKED}
        lines = [orjson.dumps({"custom_id": str(number), **line}) for number in range(requests)]
        return await self._file(b"\n".join(lines), "batch")

    async def _file(self, content: bytes, purpose: str) -> str:
        form = aiohttp.FormData({"purpose": purpose})
        form.add_field("file", content, filename="example.txt")
        return await self._made("/v1/files", form)

    async def _made(self, path: str, body: object) -> str:
        async with self._session.post(self._server + path, data=body, headers=self._headers) as answer:
            made = orjson.loads(await answer.read())
            if "id" not in made:
                raise RuntimeError(f"{path} did not make what a case needs: {made}")
            return str(made["id"])
