"""Input that is made to hurt, for every capability at once: a clear 4xx each, no engine dies, no file stays.

What is particular to documents, sounds, images and speech stands in the tests of those; a redirect to a private address
in tests/infra/test_egress.py, which has a public one to start from.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.documents import drawn, encoded, huge_png, locked_pdf
from tests.sounds import wav
from tests.system.conftest import MakeProduct
from tests.system.product import CHAT, EMBED, Product, eventually

HEARS, READS = "whisper-base", "rapidocr-ppocrv6"
MANY = 10_000
FOLDERS = ("payloads/incoming", "jobs/incoming", "files/incoming", "passing", "inputs")
"""Where what comes lies until it is known what it is."""
PNG, SOUND = encoded(drawn(("Hello.",))), wav(1.0)
TRICKS = ("../../etc/passwd", "/etc/passwd", "..\\..\\coderai.db", "a/../../b.png", "file:///etc/passwd", "con\r\nX: y")
IDS = ("..%2f..%2fcoderai.db", "%2e%2e/coderai.toml", "file-../../coderai.db", "image-..png")
ELSEWHERE = ("http://127.0.0.1:1/a", "http://169.254.169.254/latest", "http://[::1]/", "http://10.0.0.1/a", "http://0/")


class Sent(NamedTuple):
    """A request, and what must become of it: `param` may be what it likes where it is None."""

    path: str
    how: dict[str, Any]
    status: int = 400
    param: str | None = None


def form(file: bytes, name: str = "a", part: str = "file", **fields: str) -> dict[str, Any]:
    return {"files": {part: (name, file)}, "data": fields}


def hello(**more: object) -> dict[str, Any]:
    return {"json": {"model": CHAT, "messages": [{"role": "user", "content": "hello"}], **more}}


BAD = {
    "sound as a document": Sent("/v1/ocr", form(SOUND), param="file"),
    "a document as a sound": Sent("/v1/audio/transcriptions", form(PNG, model=HEARS)),
    "a sound that is called a picture": Sent("/v1/audio/transcriptions", form(PNG, "speech.wav", model=HEARS)),
    "half a sound": Sent("/v1/audio/transcriptions", form(SOUND[:20_000], model=HEARS)),
    "a playlist": Sent("/v1/audio/transcriptions", form(b"#EXTM3U\nhttp://127.0.0.1/a.ts\n", "a.mp3", model=HEARS)),
    "a playlist as a document": Sent("/v1/ocr", form(b"#EXTM3U\nfile:///etc/passwd\n", "a.png"), param="file"),
    "a huge PNG": Sent("/v1/ocr", form(huge_png()), 413, "file"),
    "a locked PDF": Sent("/v1/ocr", form(locked_pdf(), "a.pdf"), param="file"),
    "a zipped body": Sent(
        "/v1/embeddings",
        {"content": gzip.compress(b" " * 50_000_000), "headers": {"Content-Encoding": "gzip"}},
    ),
    "no documents": Sent("/v1/rerank", {"json": {"model": EMBED, "query": "q", "documents": []}}, param="documents"),
    "no documents to read": Sent("/v1/ocr/batch", {"json": {"files": []}}, param="files"),
    "nothing to embed": Sent("/v1/embeddings", {"json": {"model": EMBED, "input": []}}, param="input"),
    "no chats": Sent("/v1/chat/completions", hello(n=0), param="n"),
    "many chats": Sent("/v1/chat/completions", hello(n=MANY), param="n"),
    "many completions": Sent("/v1/completions", {"json": {"model": CHAT, "prompt": "a", "n": MANY}}, param="n"),
    "no images": Sent("/v1/images/generations", {"json": {"prompt": "a", "n": 0}}, param="n"),
    "many images": Sent("/v1/images/generations", {"json": {"prompt": "a", "n": MANY}}, param="n"),
    "a response to a picture": Sent(
        "/v1/responses",
        {"json": {"model": CHAT, "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}},
    ),
    "a response to a form": Sent("/v1/responses", form(PNG, model=CHAT)),
    "a model by its path": Sent("/v1/embeddings", {"json": {"model": "../../models/a", "input": "a"}}, 404, "model"),
    "a voice of nobody": Sent(
        "/v1/audio/speech", {"json": {"model": "tts-1", "voice": "../joe", "input": "a"}}, param="voice"
    ),
    "a file of no purpose": Sent("/v1/files", form(PNG, purpose="../x"), param="purpose"),
    "a file in JSON": Sent("/v1/files", {"json": {"file": "a", "purpose": "batch"}}),
    "a part of no upload": Sent("/v1/uploads/..%2f..%2fetc/parts", form(PNG, part="data"), 404),
    "a batch of no file": Sent(
        "/v1/batches",
        {"json": {"input_file_id": "../../x", "endpoint": "/v1/embeddings", "completion_window": "24h"}},
        503,  # without flow runs there are no batches; tests/api/openai/test_batches.py has them
    ),
}


@pytest.fixture(scope="module")
def served(make_product: MakeProduct, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """An install that keeps no request, with a folder of its own for what is temporary."""
    product = make_product(settings={"RECORD__PAYLOADS": "none"})
    product.environment["TMPDIR"] = str(tmp_path_factory.mktemp("temporary"))
    product.start()
    yield product
    assert product.stop() == 0


@pytest.fixture(scope="module")
def keys(served: Product) -> tuple[str, str]:
    """Two users' keys that are known."""
    return served.new_key("ann"), served.new_key("ben")


def sent(product: Product, path: str, how: dict[str, Any], key: str | None = None) -> httpx2.Response:
    headers = product.headers(key) | how.get("headers", {})
    return httpx2.post(f"{product.url}{path}", **{**how, "headers": headers}, timeout=60)


def left(product: Product) -> list[str]:
    """What lies where only what is under way may lie."""
    folders = [*(product.home / name for name in FOLDERS), Path(product.environment["TMPDIR"])]
    return [str(path) for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_the_client_s_to_mend(served: Product, case: str) -> None:
    path, how, status, param = BAD[case]
    answer = sent(served, path, how)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert param is None or error["param"].startswith(param), error
    eventually(lambda: not left(served), 10, what=lambda: f"left: {left(served)}")  # they go after the answer


@pytest.mark.parametrize("name", TRICKS)
def test_a_name_is_never_a_path(served: Product, name: str) -> None:
    before = {path.name for path in served.home.parent.iterdir()}
    kept = sent(served, "/v1/files", form(b"x", name, purpose="user_data"))
    if kept.status_code == 200:
        shown = kept.json()["filename"]
        assert not set(shown) & set("/\\\r\n")
        content = f"{served.url}/v1/files/{kept.json()['id']}/content"
        fetched = httpx2.get(content, headers=served.headers(), timeout=10)
        assert (fetched.status_code, fetched.content) == (200, b"x")
        assert "\n" not in fetched.headers["content-disposition"]
    else:
        assert kept.status_code == 400
    read = sent(served, "/v1/ocr", form(b"no picture", name))
    assert (read.status_code, "etc/" in read.text) == (400, False)
    assert {path.name for path in served.home.parent.iterdir()} == before


@pytest.mark.parametrize(
    "name", ["..%2f..%2fcoderai.db", "%2e%2e/coderai.toml", "file-../../coderai.db", "image-..png"]
)
def test_a_file_is_asked_for_by_its_id_alone(served: Product, name: str) -> None:
    for path in (f"/v1/files/{name}", f"/v1/files/{name}/content", f"/v1/files/{name}?expires=9&signature=a"):
        answer = httpx2.get(f"{served.url}{path}", headers=served.headers(), timeout=10)
        assert answer.status_code in (403, 404), (path, answer.text)
        assert "SQLite" not in answer.text


@pytest.mark.parametrize("url", ELSEWHERE)
def test_nothing_private_is_fetched(served: Product, url: str) -> None:
    for path, body in (
        ("/v1/ocr", {"file": url}),
        ("/v1/ocr", {"file": {"url": url}}),
        ("/v1/images/edits", {"prompt": "a", "image": url}),
    ):
        answer = sent(served, path, {"json": body})
        # Without a model that draws an edit ends before anything could be fetched.
        assert answer.status_code in ((400, 403) if path == "/v1/ocr" else (400, 403, 404, 501)), answer.text


def test_two_keys_do_not_reach_each_other_s(served: Product, keys: tuple[str, str]) -> None:
    ann, ben = keys
    file = sent(served, "/v1/files", form(b"{}", purpose="batch"), ann).json()["id"]
    wanted = {"bytes": 3, "filename": "a", "mime_type": "text/plain", "purpose": "user_data"}
    upload = sent(served, "/v1/uploads", {"json": wanted}, ann).json()["id"]
    asked = {"model": CHAT, "input": "hello", "max_output_tokens": 1}
    answered = sent(served, "/v1/responses", {"json": asked}, ann)
    response, run = answered.json()["id"], answered.headers["x-coderai-run"]
    assert [sent(served, f"/v1/uploads/{upload}/{end}", how, ben).status_code for end, how in _endings()] == [404] * 3
    for method, path in (
        ("GET", f"/v1/files/{file}"),
        ("GET", f"/v1/files/{file}/content"),
        ("DELETE", f"/v1/files/{file}"),
        ("GET", f"/v1/responses/{response}"),
        ("GET", f"/v1/responses/{response}/input_items"),
        ("DELETE", f"/v1/responses/{response}"),
        ("POST", f"/v1/responses/{response}/cancel"),
        ("GET", f"/v1/runs/{run}"),
        ("POST", f"/v1/runs/{run}/cancel"),
    ):
        other = httpx2.request(method, f"{served.url}{path}", headers=served.headers(ben), timeout=30)
        assert other.status_code == 404, (method, path, other.text)
    for path in ("/v1/responses", "/v1/responses/input_tokens"):
        gone_on = sent(served, path, {"json": asked | {"previous_response_id": response}}, ben)
        assert (gone_on.status_code, gone_on.json()["error"]["param"]) == (404, "previous_response_id")
    for path in ("/v1/files", "/v1/batches", "/v1/runs"):
        assert served.get(path, key=ben)["data"] == []
    assert served.get(f"/v1/files/{file}", key=ann)["id"] == file
    assert served.get(f"/v1/responses/{response}", key=ann)["id"] == response


def _endings() -> list[tuple[str, dict[str, Any]]]:
    return [("cancel", {}), ("complete", {"json": {"part_ids": []}}), ("parts", form(b"abc", part="data"))]


def test_afterwards_all_engines_live_and_nothing_is_left(served: Product) -> None:
    assert sent(served, "/v1/ocr", form(PNG)).status_code == 200
    assert sent(served, "/v1/audio/transcriptions", form(SOUND, model=HEARS)).status_code == 200
    assert sent(served, "/v1/chat/completions", hello(max_tokens=1)).status_code == 200
    engines = served.engines()
    assert {engines[name]["incarnation"] for name in (CHAT, HEARS, READS)} == {1}
    eventually(lambda: not left(served), 10, what=lambda: str(left(served)))
    assert "Traceback" not in served.log
