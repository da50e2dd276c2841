"""Models that are fetched first, from servers of this machine: resumed, verified, catalogued or not at all."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.cli.adding import _file_name, add_downloaded, is_remote
from infra.database import Database, open_database
from infra.downloads import WrongFile
from infra.errors import InvalidRequest, ModelNotFound, NotFound
from infra.hub_folder import NOTE
from infra.migrate import migrate
from infra.settings import Settings, load_settings
from tests.hub import Hub, running_hub
from tests.model_folders import BERT, write_encoder, write_pipeline, write_sentence_model
from tests.tiny_gguf import write_tiny_llama
from workers.catalogue_rows import ModelRows
from workers.types import Capability, ModelEntry, ModelFormat

pytestmark = pytest.mark.enable_socket

HALF = 100_000


class Far:
    """A server of one file, as a plain URL and as a hub's repository; what was asked, and where it breaks off."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[str | None] = []
        self.breaks = False
        self.url = ""

    async def file(self, request: web.Request) -> web.StreamResponse:
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        response = web.StreamResponse(status=206 if start else 200, headers={"ETag": '"v1"'})
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(self.data) - 1}/{len(self.data)}"
        response.content_length = len(self.data) - start
        await response.prepare(request)
        if self.breaks:
            self.breaks = False
            await response.write(self.data[:HALF])
            await asyncio.sleep(0.05)  # the bytes are read before the end is seen
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write(self.data[start:])
        return response

    async def info(self, _request: web.Request) -> web.Response:
        return web.json_response({"siblings": [{"rfilename": "tiny-Q4_K_M.gguf"}], "new_field": 1})

    async def tree(self, _request: web.Request) -> web.Response:
        lfs = {"oid": hashlib.sha256(self.data).hexdigest(), "size": len(self.data)}
        return web.json_response([{"path": "tiny-Q4_K_M.gguf", "size": len(self.data), "lfs": lfs}])


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Far]:
    made = Far(write_tiny_llama(tmp_path / "far.gguf").read_bytes())
    app = web.Application()
    app.router.add_get("/files/tiny.gguf", made.file)
    app.router.add_get("/own/tiny-GGUF/resolve/main/tiny-Q4_K_M.gguf", made.file)
    app.router.add_get("/api/models/own/tiny-GGUF", made.info)
    app.router.add_get("/api/models/own/tiny-GGUF/tree/main", made.tree)
    async with TestServer(app, host="127.0.0.1") as server:
        made.url = str(server.make_url("/files/tiny.gguf"))
        yield made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path / "home")


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    settings.home.mkdir(mode=0o700)
    made = open_database(settings.sqlalchemy_url)
    migrate(made)
    yield made
    made.close()


async def add(settings: Settings, database: Database, what: str, sha256: str | None = None) -> ModelEntry:
    """As the command does, which has no loop of its own running."""
    rows = ModelRows(settings, database)
    return await asyncio.to_thread(add_downloaded, settings, rows, what, None, sha256, {"max_instances": 2})


async def test_a_url_becomes_a_model(far: Far, settings: Settings, database: Database) -> None:
    entry = await add(settings, database, f"{far.url}?signature=hush", hashlib.sha256(far.data).hexdigest())
    path = settings.at("models", "downloads", "tiny.gguf")
    assert (entry.name, entry.path, entry.max_instances) == ("tiny", path.resolve(), 2)
    assert path.read_bytes() == far.data
    assert [one.name for one in path.parent.iterdir()] == ["tiny.gguf"]


async def test_a_download_that_was_cut_off_goes_on(far: Far, settings: Settings, database: Database) -> None:
    far.breaks = True
    entry = await add(settings, database, far.url, hashlib.sha256(far.data).hexdigest())
    assert far.asked == [None, f"bytes={HALF}-"]
    assert entry.path is not None
    assert entry.path.read_bytes() == far.data


async def test_another_file_than_promised_is_not_kept(far: Far, settings: Settings, database: Database) -> None:
    with pytest.raises(WrongFile, match="SHA-256"):
        await add(settings, database, far.url, "0" * 64)
    assert list(settings.at("models", "downloads").iterdir()) == []


async def test_what_is_not_there(far: Far, settings: Settings, database: Database) -> None:
    with pytest.raises(NotFound):
        await add(settings, database, far.url.replace("tiny", "other"))


async def test_what_is_no_weights_is_not_catalogued(far: Far, settings: Settings, database: Database) -> None:
    far.data = b"<html>" * 1000
    with pytest.raises(InvalidRequest, match="GGUF"):
        await add(settings, database, far.url)


async def test_a_hub_s_model_is_called_after_its_repository_and_fetched_once(
    far: Far, settings: Settings, database: Database
) -> None:
    hub = settings.model_copy(
        update={"models": settings.models.model_copy(update={"hub_url": far.url.partition("/files")[0]})}
    )
    entry = await add(hub, database, "own/tiny-GGUF:Q4_K_M")
    assert entry.name == "tiny-GGUF"
    assert entry.path == settings.at("models", "own", "tiny-GGUF", "tiny-Q4_K_M.gguf").resolve()
    assert len(far.asked) == 1
    ModelRows(hub, database).remove("tiny-GGUF")
    await add(hub, database, "own/tiny-GGUF")
    assert len(far.asked) == 1


def of_folder(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def at(hub: Hub, settings: Settings) -> Settings:
    return settings.model_copy(update={"models": settings.models.model_copy(update={"hub_url": hub.url})})


async def test_a_hub_s_folder_has_what_is_loaded_and_nothing_twice(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    needed = of_folder(write_sentence_model(tmp_path / "far", dense=7))
    more = {"README.md": b"x", "pytorch_model.bin": b"PK", "onnx/model.onnx": b"x", "train_script.py": b"x"}
    async with running_hub(needed | more) as hub:
        entry = await add(at(hub, settings), database, "own/repo")
        folder = settings.at("models", "own", "repo")
        assert (entry.name, entry.path, entry.format) == ("repo", folder, ModelFormat.SENTENCE_TRANSFORMERS)
        assert (entry.embedding_dimensions, entry.max_instances) == (7, 2)
        found = of_folder(folder)
        del found[NOTE]
        assert found == needed
        asked = len(hub.asked)
        ModelRows(settings, database).remove("repo")
        await add(at(hub, settings), database, "own/repo")
        assert hub.fetched()[asked:] == ["modules.json"]  # which says what belongs to it


async def test_a_variant_has_a_folder_of_its_own(settings: Settings, database: Database, tmp_path: Path) -> None:
    files = of_folder(write_pipeline(tmp_path / "far"))
    halves = {name.replace(".safetensors", ".fp16.safetensors"): data for name, data in files.items() if "safe" in name}
    async with running_hub(files | halves) as hub:
        entry = await add(at(hub, settings), database, "own/repo:fp16")
        assert entry.path == settings.at("models", "own", "repo--fp16")
        assert (entry.name, entry.capabilities) == ("repo", (Capability.IMAGES,))
        assert set(of_folder(entry.path)) == {*files, NOTE}
        assert "unet/diffusion_pytorch_model.fp16.safetensors" in hub.fetched()


async def test_a_hub_s_model_that_wants_code_is_refused_before_its_weights_come(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    files = of_folder(write_encoder(tmp_path / "far", {**BERT, "auto_map": {"AutoModel": "modeling.Mine"}}))
    async with running_hub(files) as hub:
        with pytest.raises(InvalidRequest, match="never run"):
            await add(at(hub, settings), database, "own/repo")
        assert "model.safetensors" not in hub.fetched()
    assert not settings.at("models", "own", "repo").exists()
    with pytest.raises(ModelNotFound):
        ModelRows(settings, database).remove("repo")


@pytest.mark.parametrize(
    ("what", "remote"),
    [("http://x/a.gguf", True), ("https://x/a", True), ("own/repo", True), ("own/repo:Q8_0", True), ("a.gguf", False)],
)
def test_what_is_to_be_fetched(what: str, remote: bool) -> None:
    assert is_remote(what) is remote


def test_a_file_that_is_here_is_no_hub_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "repo").write_text("")
    monkeypatch.chdir(tmp_path)
    assert not is_remote("own/repo")


@pytest.mark.parametrize("url", ["http://x/a/b.gguf", "http://x/b.gguf?token=c/d.gguf#e", "http://x/%62.gguf"])
def test_a_url_s_file_name(url: str) -> None:
    assert _file_name(url) == "b.gguf"


@pytest.mark.parametrize("url", ["http://x", "http://x/", "http://x/..", "http://x/a%2F..%2F.hidden", "http://x/a%00b"])
def test_a_url_without_a_safe_name(url: str) -> None:
    with pytest.raises(InvalidRequest, match="download it yourself"):
        _file_name(url)
