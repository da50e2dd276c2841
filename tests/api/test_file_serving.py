"""Generated files on a real front: by signed address without a key, by their owner's key, and not otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from infra.types import FileId, KeyName
from tests.api.conftest import Front, StartFront
from tests.api.openai.test_files import client, kept


async def made(front: Front, media_type: str = "image/png", data: bytes = b"pixels") -> FileId:
    desk = front.services.files
    return await desk.run(lambda: desk.generated.keep(KeyName("user"), data, "image", "png", media_type))


@dataclass
class Fetched:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> object:
        """The error's."""
        return orjson.loads(self.body)["error"]["code"]


async def fetched(front: Front, url: str, scope: str | None = None, method: str = "GET") -> Fetched:
    headers = front.headers(scope) if scope else {}
    async with front.session.request(method, url, headers=headers) as answer:
        return Fetched(answer.status, answer.headers, await answer.read())


async def test_by_signature_without_a_key(start_front: StartFront) -> None:
    front = await start_front()
    name = await made(front)
    url = front.services.files.generated.signed_url(name, front.url)
    answer = await fetched(front, url)
    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (200, b"pixels", "image/png")
    assert answer.headers["Content-Disposition"].startswith("inline")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    head = await fetched(front, url, method="HEAD")
    assert (head.status, head.headers["Content-Length"]) == (200, "6")
    for changed in (url[:-1], url.replace(name, "image-" + "0" * 32 + ".png"), url.replace("expires=1", "expires=2")):
        answer = await fetched(front, changed)
        assert (answer.status, answer.code) == (403, "bad_signature")
    front.services.files.files.delete(name, None)
    assert (await fetched(front, url)).status == 404
    assert kept(front) == []


async def test_by_key(start_front: StartFront) -> None:
    front = await start_front()
    url = f"{front.url}/v1/files/{await made(front)}"
    assert [(await fetched(front, url, scope)).status for scope in ("user", "admin", "node", None)] == [
        200, 200, 404, 401,
    ]  # fmt: skip
    assert (await fetched(front, url, "user", "POST")).status == 405


async def test_what_could_run_in_a_browser_is_saved_instead(start_front: StartFront) -> None:
    front = await start_front()
    name = await made(front, "text/html", b"<script>alert(1)</script>")
    answer = await fetched(front, front.services.files.generated.signed_url(name, front.url))
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["Content-Security-Policy"]


async def test_uploaded_files_are_not_opened_by_a_signature(start_front: StartFront) -> None:
    front = await start_front()
    async with client(front) as mine:
        file = await mine.files.create(file=("a.txt", b"mine"), purpose="user_data")
    url = front.services.files.generated.signed_url(FileId(file.id), front.url)
    assert (await fetched(front, url)).status == 401
    assert (await fetched(front, url, "node")).status == 404


async def test_names_that_are_none(start_front: StartFront) -> None:
    front = await start_front()
    for name in ("image-1.png", "../image.png", "image-" + "0" * 32 + ".png", "x"):
        assert (await fetched(front, f"{front.url}/v1/files/{name}", "user")).status == 404
