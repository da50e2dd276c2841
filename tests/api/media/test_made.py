"""Files that a run has made, as their client gets them."""

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from api.file_desk import FileDesk
from api.media.made import MadeFiles, Receiver, origin_of
from infra.blobs import Blobs
from infra.database import open_database
from infra.errors import InvalidRequest, PayloadGone
from infra.file_rows import GENERATED
from infra.migrate import migrate
from infra.settings import Settings, load_settings
from infra.types import FileId, Json, KeyName
from tasks.made import FILES_TYPE, files_answer
from tasks.types import TaskResult

ANN = Receiver(KeyName("ann"), "http://box:8776")


class Made:
    """An install's files, and a blob that a run has made."""

    def __init__(self, settings: Settings) -> None:
        settings.home.mkdir(mode=0o700)
        self.database = open_database(settings.sqlalchemy_url)
        migrate(self.database)
        self.desk = FileDesk(settings, self.database)
        self.blobs = Blobs(settings.at("payloads"))
        self.files = MadeFiles(self.desk, (Blobs(settings.at("jobs")), self.blobs))

    def result(self, form: str, *images: bytes) -> TaskResult:
        data: list[Json] = [
            {"blob": self.blobs.put(image), "media_type": "image/png", "suffix": "png", "seed": seed}
            for seed, image in enumerate(images)
        ]
        return files_answer(data, form, {"output_format": "png"})

    async def turned(self, receiver: Receiver, result: TaskResult) -> Any:
        turned = await self.files.turn_result(receiver, result)
        assert turned.media_type == "application/json"
        assert isinstance(turned.value, bytes)
        return orjson.loads(turned.value)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    one = Made(load_settings(home=tmp_path / "home"))
    yield one
    one.desk.close()
    one.database.close()


@pytest.mark.parametrize("form", ["b64_json", "b64_mp4"])
async def test_in_the_answer_itself(made: Made, form: str) -> None:
    body = await made.turned(ANN, made.result(form, b"one", b"two"))
    assert [base64.b64decode(item.pop(form)) for item in body["data"]] == [b"one", b"two"]
    assert body["data"] == [{"seed": 0}, {"seed": 1}]
    assert set(body) == {"created", "data", "output_format"}


async def test_by_an_address(made: Made) -> None:
    (item,) = (await made.turned(ANN, made.result("url", b"one")))["data"]
    assert item["seed"] == 0
    assert item["url"].startswith("http://box:8776/v1/files/image-")
    name = FileId(item["url"].partition("?")[0].rpartition("/")[2])
    file = made.desk.files.get(name, ANN.key)
    assert (file.purpose, file.media_type, file.size_bytes) == (GENERATED, "image/png", 3)


async def test_a_key_has_each_content_once_and_no_other_s(made: Made) -> None:
    async def name(receiver: Receiver) -> str:
        (item,) = (await made.turned(receiver, made.result("url", b"one")))["data"]
        return str(item["url"]).partition("?")[0]

    ben = Receiver(KeyName("ben"), ANN.origin)
    assert await name(ANN) == await name(ANN) != await name(ben)


async def test_what_is_gone_or_does_not_fit(made: Made, tmp_path: Path) -> None:
    lost = files_answer([{"blob": f"sha256:{0:064x}", "media_type": "image/png", "suffix": "png"}], "url")
    with pytest.raises(PayloadGone):
        await made.turned(ANN, lost)
    small = Made(load_settings(home=tmp_path / "small", files={"quota_per_key_mb": 1}))
    with pytest.raises(InvalidRequest, match="quota"):
        await small.turned(ANN, small.result("url", b"x" * (2 << 20)))
    small.desk.close()
    small.database.close()


async def test_any_other_answer_stays(made: Made) -> None:
    plain = TaskResult(b'{"response_format": "url"}')
    assert await made.files.turn_result(ANN, plain) == plain
    assert await made.files.turn(ANN, b"text", "text/plain") == (b"text", "text/plain")
    assert made.result("url").media_type == FILES_TYPE


@pytest.mark.parametrize(
    ("scheme", "headers", "wanted"),
    [
        ("http", [(b"host", b"box:8776")], "http://box:8776"),
        ("https", [(b"host", b"box")], "https://box"),
        ("http", [(b"host", b"[::1]:1"), (b"x-forwarded-proto", b"https")], "https://[::1]:1"),
        ("http", [(b"host", b"evil/path?")], ""),
        ("http", [(b"host", b"a b")], ""),
        ("http", [], ""),
    ],
)
def test_where_a_client_reaches_us(scheme: str, headers: list[tuple[bytes, bytes]], wanted: str) -> None:
    assert origin_of({"scheme": scheme, "headers": headers}) == wanted


async def test_an_answer_with_its_files_in_it_is_written_in_a_thread(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(value: Any) -> bytes:
        threads.append(threading.current_thread())
        return orjson.dumps(value)

    monkeypatch.setattr("api.media.made.orjson", SimpleNamespace(loads=orjson.loads, dumps=noted))
    assert (await made.turned(ANN, made.result("b64_json", b"image")))["data"]
    assert threads != []
    assert threading.main_thread() not in threads
