"""Things that the suite takes for granted: its cases ask for `file_id` and `upload_abc123`, which a mock server has.

A real one has what was put there, so the proxy makes the thing first, through the same API and not counted, and asks
for that instead. Whether it can be looked up, changed or deleted is then the server's own doing.
"""

import re

import aiohttp
import orjson

_FILE = re.compile(r"/v1/files/file_id(?=/|$)")
_UPLOAD = re.compile(r"/v1/uploads/upload_abc123(?=/|$)")
_RESPONSE = re.compile(r"/v1/responses/(resp_677efb5139a88190b512bc3fef8e535d|response_id)(?=/|$)")
_CONTENT = b"Example data"


class StandIns:
    """Makes them on the server, with the key that the proxy has."""

    def __init__(self, session: aiohttp.ClientSession, server: str, key: str) -> None:
        self._session = session
        self._server = server
        self._headers = {"Authorization": f"Bearer {key}"}

    async def path(self, path: str) -> str:
        """The path to ask for in place of the one that a case asks for."""
        if _FILE.match(path):
            form = aiohttp.FormData({"purpose": "user_data"})
            form.add_field("file", _CONTENT, filename="example.txt")
            return _FILE.sub(f"/v1/files/{await self._made('/v1/files', form)}", path)
        if _UPLOAD.match(path):
            wanted = {"bytes": len(_CONTENT), "filename": "a", "mime_type": "text/plain", "purpose": "user_data"}
            body = aiohttp.JsonPayload(wanted)
            return _UPLOAD.sub(f"/v1/uploads/{await self._made('/v1/uploads', body)}", path)
        if _RESPONSE.match(path):
            asked = aiohttp.JsonPayload({"model": "model", "input": "Say hello.", "max_output_tokens": 1})
            return _RESPONSE.sub(f"/v1/responses/{await self._made('/v1/responses', asked)}", path)
        return path

    async def _made(self, path: str, body: object) -> str:
        async with self._session.post(self._server + path, data=body, headers=self._headers) as answer:
            made = orjson.loads(await answer.read())
            if "id" not in made:
                raise RuntimeError(f"{path} did not make what a case needs: {made}")
            return str(made["id"])
