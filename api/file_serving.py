"""A stored file as an answer, and the generated ones by their signed addresses."""

import re
from http import HTTPStatus
from urllib.parse import parse_qs

from fastapi.responses import FileResponse

from api.asgi import ASGIApp, ClientGone, Exchange, Receive, Scope, Send
from api.services import Services
from infra.errors import CoderAIError, NotFound
from infra.file_names import is_file_id
from infra.file_rows import GENERATED, StoredFile
from infra.file_store import FileStore
from infra.types import FileId, KeyName

_NAME = re.compile(r"/v1/files/([a-z0-9]{1,8}-[0-9a-f]{32}\.[a-z0-9]{1,8})", re.ASCII)
_SHOWN_IN_PLACE = ("image/png", "image/jpeg", "image/webp", "audio/", "video/")


def content(file: StoredFile, store: FileStore) -> FileResponse:
    """A file's bytes, safe to open in a browser whoever made them: a page among them runs no script.

    Raises:
        NotFound: they are not kept any more.
    """
    path = store.path(file.ref)
    if not path.exists():
        raise NotFound(f"the bytes of the file {file.id!r} are not kept any more", param="file_id", code="file_gone")
    return FileResponse(
        path,
        HTTPStatus.OK,
        {
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Cache-Control": "private, no-store",
            "ETag": f'"{file.ref.removeprefix("sha256:")}"',
        },
        file.media_type,
        filename=file.filename,
        content_disposition_type="inline" if file.media_type.startswith(_SHOWN_IN_PLACE) else "attachment",
    )


class GeneratedArea:
    """`GET /v1/files/<name of a generated file>`: by signature without a key, or by its owner's key."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def find(self, method: str, path: str) -> ASGIApp | None:
        """Who answers there; None if nobody here does."""
        name = _NAME.fullmatch(path)
        if method not in ("GET", "HEAD") or name is None or is_file_id(name[1]):
            return None

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            exchange = Exchange(scope, receive, send)
            try:
                await (await self._found(exchange, FileId(name[1])))(scope, receive, send)
            except ClientGone:
                return
            except CoderAIError as error:
                await exchange.fail(error, [])

        return answer

    async def _found(self, exchange: Exchange, name: FileId) -> ASGIApp:
        files = self._services.files.files
        owner = self._owner(exchange, name)
        file = await self._services.files.run(lambda: files.get(name, owner))
        if file.purpose != GENERATED:
            raise NotFound(f"there is no generated file {name!r}", code="file_not_found")
        return content(file, files.store)

    def _owner(self, exchange: Exchange, name: FileId) -> KeyName | None:
        """Whose file it must be; None where the address itself opens it."""
        query = parse_qs(exchange.scope["query_string"].decode("latin-1"))
        expires, signature = query.get("expires", [""])[-1], query.get("signature", [""])[-1]
        if signature:
            self._services.files.generated.require_signature(name, expires, signature)
            return None
        key = self._services.auth.require(exchange.headers, "user")
        return None if key.scope == "admin" else key.name
