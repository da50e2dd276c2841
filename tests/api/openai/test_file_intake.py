"""Bodies that come as files, on raw sockets and by the client: streamed, refused, broken off; nothing half stays."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.api.conftest import Front, StartFront
from tests.api.openai.test_files import client, kept

MIB = 1 << 20


def form(name: str = "a.txt", data: object = b"hello", purpose: str | None = "user_data") -> aiohttp.FormData:
    made = aiohttp.FormData()
    if purpose is not None:
        made.add_field("purpose", purpose)
    made.add_field("file", io.BytesIO(data) if isinstance(data, bytes) else data, filename=name)
    return made


async def sent(front: Front, body: object, path: str = "/v1/files", **headers: str) -> tuple[int, dict[str, object]]:
    async with front.session.post(front.url + path, data=body, headers=front.headers() | headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("a\u202etxt.exe", "a_txt.exe"),
        ("nul\x00byte", "nul%00byte"),
        ("x" * 400 + ".jsonl", "x" * 249 + ".jsonl"),
        ('q"uo;te.txt', 'q"uo;te.txt'),
        ("日本.txt", "日本.txt"),
    ],
)
async def test_hostile_names(start_front: StartFront, name: str, shown: str) -> None:
    front = await start_front()
    async with client(front) as mine:
        made = await mine.files.create(file=(name, b"x"), purpose="user_data")
        assert made.filename == shown
        answer = await mine.files.content(made.id)
        assert "\n" not in answer.response.headers["content-disposition"]
    assert [len(path.name) for path in kept(front)] == [62]  # the content's hash, and nothing of the name


@pytest.mark.parametrize("name", ["", "..", "/", "\\", "\u200b", " . "])
async def test_names_of_nothing(start_front: StartFront, name: str) -> None:
    front = await start_front()
    boundary = b"--x\r\nContent-Disposition: form-data; name="
    body = boundary + b'"purpose"\r\n\r\nuser_data\r\n' + boundary + b'"file"; filename="' + name.encode() + b'"'
    status, answer = await sent(
        front, body + b"\r\n\r\nabc\r\n--x--\r\n", **{"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert (status, kept(front)) == (400, []), answer


async def test_what_is_missing_or_unknown(start_front: StartFront) -> None:
    front = await start_front()
    strange = form()
    strange.add_field("colour", "red")
    only = aiohttp.FormData({"purpose": "batch"})
    only.add_field("other", b"x", filename="o")
    for body, param in (
        (form(purpose=None), "purpose"),
        (form(purpose="party"), "purpose"),
        (strange, "colour"),
        (only, "file"),
        (b'{"purpose": "batch"}', None),
    ):
        status, answer = await sent(front, body)
        error = answer["error"]
        assert isinstance(error, dict)
        assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert kept(front) == []


async def test_too_large_is_told_before_and_during(start_front: StartFront) -> None:
    front = await start_front(files={"max_file_mb": 1})
    assert (await sent(front, form(data=b"x" * MIB)))[0] == 200
    for data in (b"x" * (MIB + 1), _chunks(3), b"y" * (3 * MIB)):
        status, answer = await sent(front, form(data=data))
        error = answer["error"]
        assert isinstance(error, dict)
        assert (status, error["code"]) == (413, "file_too_large")
        assert "files.max_file_mb" in str(error["message"])
    assert len(kept(front)) == 1


async def test_quotas_of_a_key_and_of_all(start_front: StartFront) -> None:
    front = await start_front(files={"quota_per_key_mb": 2, "quota_total_mb": 3})
    assert (await sent(front, form(data=b"a" * (MIB * 3 // 2))))[0] == 200
    for data in (b"b" * MIB, _chunks(1)):  # announced, and not
        status, answer = await sent(front, form(data=data))
        error = answer["error"]
        assert isinstance(error, dict)
        assert (status, error["code"]) == (400, "file_quota_exceeded")
    body = form(data=b"c" * (2 * MIB - 10))
    async with front.session.post(f"{front.url}/v1/files", data=body, headers=front.headers("node")) as other:
        assert other.status == 507
        assert (await other.json())["error"]["code"] == "file_quota_exceeded"
    assert len(kept(front)) == 1
    async with client(front) as mine:
        await mine.files.delete((await mine.files.list()).data[0].id)
        await mine.files.create(file=("a", b"b" * MIB), purpose="vision")


async def _chunks(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * MIB


async def test_a_large_body_is_never_in_memory_and_the_loop_goes_on(start_front: StartFront) -> None:
    front = await start_front()
    size_mib, slowest_s = 48, 0.0

    async def watch() -> None:
        nonlocal slowest_s
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            slowest_s = max(slowest_s, loop.time() - before)

    watching = asyncio.create_task(watch())
    status, made = await sent(front, form(data=_chunks(size_mib)))
    watching.cancel()
    assert (status, made["bytes"]) == (200, size_mib * MIB)
    digest = hashlib.sha256()
    for number in range(size_mib):
        digest.update(bytes([number]) * MIB)
    (path,) = kept(front)
    assert path.parent.name + path.name == digest.hexdigest()
    assert slowest_s < 1.0


async def test_a_client_that_leaves_and_one_that_is_silent_leave_nothing(start_front: StartFront) -> None:
    front = await start_front(server={"body_timeout_s": 0.5})
    head = (
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {front.keys['user']}\r\n"
        "Content-Length: 3000000\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="file"; '
        'filename="a"\r\n\r\n'
    ).encode()
    for silent in (True, False):
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(head + b"x" * MIB)
        await writer.drain()
        if silent:
            assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 408")
        writer.close()
        await asyncio.sleep(0.2)
        assert kept(front) == []


@pytest.mark.parametrize("off_by", [-30, 1])
async def test_a_body_of_another_length_than_announced(start_front: StartFront, off_by: int) -> None:
    """What comes beyond the announced length is no part of the form; for what is missing we wait as long as for any."""
    front = await start_front(server={"body_timeout_s": 0.5})
    body = (
        b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + b"y" * MIB + b"\r\n--x--"
    )
    head = (
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {front.keys['user']}\r\n"
        f"Content-Length: {len(body) + off_by}\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(head.encode() + body)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400" if off_by < 0 else b"HTTP/1.1 408")
    async with asyncio.timeout(5):
        while kept(front):
            await asyncio.sleep(0.01)


async def test_a_body_that_goes_on_after_its_end(start_front: StartFront) -> None:
    front = await start_front()

    async def endless() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\ny\r\n--x--\r\n'
        while True:
            yield bytes(1 << 16)

    headers = front.headers() | {"Content-Type": "multipart/form-data; boundary=x"}
    async with front.session.post(f"{front.url}/v1/files", data=endless(), headers=headers) as answer:
        assert answer.status == 400
        assert "bytes besides its files" in (await answer.json())["error"]["message"]
    assert kept(front) == []


async def test_a_slow_client_that_sends_has_time(start_front: StartFront) -> None:
    front = await start_front(server={"body_timeout_s": 0.4})

    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * (512 << 10)
            await asyncio.sleep(0.2)

    assert (await sent(front, form(data=slowly())))[0] == 200


async def test_without_a_key_and_with_other_methods(start_front: StartFront) -> None:
    front = await start_front()
    async with front.session.post(f"{front.url}/v1/files", data=form()) as answer:
        assert answer.status == 401
    async with front.session.put(f"{front.url}/v1/files", headers=front.headers()) as answer:
        assert answer.status == 405
    status, _ = await sent(front, form(), "/v1/uploads/upload_x/parts")
    assert status == 404
    assert kept(front) == []


async def test_requests_at_once_are_limited(start_front: StartFront) -> None:
    front = await start_front(auth={"requests_per_minute": 1})
    assert (await sent(front, form()))[0] == 200
    assert (await sent(front, form()))[0] == 429
