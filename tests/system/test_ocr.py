"""Documents over HTTP through the real engine process: drawn text is read, and what is made to hurt is refused."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.documents import SENTENCES, distance, drawn, empty_pdf, encoded, huge_png, locked_pdf, pdf
from tests.system.conftest import end
from tests.system.product import Product, eventually

MODEL = "rapidocr-ppocrv6"
ONE = encoded(drawn())


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """An install of its own: it needs no other model, and nothing of a request may stay in it."""
    settings = {"MODELS__PACKAGED": "true", "RECORD__PAYLOADS": "none"}
    served = Product(tmp_path_factory.mktemp("ocr") / "home", settings=settings)
    try:
        served.start()
        yield served
    finally:
        end(served)


def send(product: Product, *files: tuple[str, bytes], key: str | None = None, **fields: str) -> httpx2.Response:
    """Post a form: one file to /v1/ocr, several to /v1/ocr/batch."""
    batch = len(files) > 1
    parts = [("files" if batch else "file", (name, data)) for name, data in files]
    path = "/v1/ocr/batch" if batch else "/v1/ocr"
    return httpx2.post(f"{product.url}{path}", files=parts, data=fields, headers=product.headers(key), timeout=120)


def good(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def error_of(answer: httpx2.Response) -> Any:
    assert 400 <= answer.status_code < 500, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def kept(product: Product) -> list[Path]:
    """Files of requests, in whatever folder they could be."""
    folders = ("payloads", "jobs", "passing", "inputs")
    return [path for folder in folders for path in product.home.glob(f"{folder}/**/*") if path.is_file()]


def test_drawn_sentences_are_read(product: Product) -> None:
    body = good(send(product, ("page.png", ONE)))
    wanted = "\n".join(SENTENCES)
    assert distance(body["text"], wanted) <= 0.02 * len(wanted), body["text"]
    assert (body["engine"], body["num_pages"], body["usage"]) == ("rapidocr", 1, {"pages": 1})
    (page,) = body["pages"]
    assert (page["page"], page["width"]) == (1, 900)
    assert [set(line) for line in page["lines"]] == [{"text", "confidence", "box", "polygon"}] * len(SENTENCES)
    assert all(0.5 < line["confidence"] <= 1 for line in page["lines"])
    tops = [line["box"][1] for line in page["lines"]]
    assert tops == sorted(tops)
    assert all(0 <= line["box"][0] < line["box"][2] <= page["width"] for line in page["lines"])
    assert [number for region in page["regions"] for number in region["lines"]] == list(range(len(SENTENCES)))


def test_a_pdf_has_its_pages_in_order(product: Product) -> None:
    pages = [drawn((f"This is page number {word}.",), width=600) for word in ("one", "two", "three")]
    body = good(send(product, ("three.pdf", pdf(pages)), dpi="150", detect="off"))
    assert body["num_pages"] == 3
    assert [page["text"] for page in body["pages"]] == [
        f"This is page number {word}." for word in ("one", "two", "three")
    ]
    assert [page["regions"] for page in body["pages"]] == [[], [], []]
    assert body["text"] == "\n\n".join(page["text"] for page in body["pages"])


def test_a_batch_keeps_its_order_and_tells_each_error(product: Product) -> None:
    first, last = encoded(drawn(("First of all.",))), encoded(drawn(("Last of all.",)), "JPEG")
    cut = encoded(drawn())[:3000]
    files = [("a.png", first), ("b.txt", b"hello"), ("c.png", cut), ("d.pdf", locked_pdf()), ("e.jpg", last)]
    body = good(send(product, *files))
    results = body["results"]
    assert [(each["index"], each["filename"]) for each in results] == list(enumerate(name for name, _data in files))
    assert [each.get("text") for each in results] == ["First of all.", None, None, None, "Last of all."]
    codes = [each["error"]["code"] for each in results if "error" in each]
    assert codes == ["unsupported_type", "unreadable", "password"]
    assert body["usage"] == {"pages": 2}


def test_a_batch_of_nothing_that_can_be_read_is_still_a_batch(product: Product) -> None:
    body = good(send(product, ("a.png", b""), ("b.png", huge_png())))
    assert [each["error"]["code"] for each in body["results"]] == ["empty_file", "too_many_pixels"]


BAD = {
    "empty": (b"", 400, "empty_file"),
    "text": (b"hello there", 400, "unsupported_type"),
    "a playlist": (b"#EXTM3U\nfile:///etc/passwd\n", 400, "unsupported_type"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 400, "unsupported_type"),
    "a bomb": (huge_png(), 413, "too_many_pixels"),
    "a locked PDF": (locked_pdf(), 400, "password"),
    "a PDF of nothing": (b"%PDF-1.7\n" + b"x" * 500, 400, "unreadable"),
    "too many pages": (empty_pdf(501), 413, "too_many_pages"),
    "half an image": (ONE[:3000], 400, "unreadable"),
    "too narrow": (encoded(drawn(("x",), width=60).resize((4000, 10))), 400, "too_narrow"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_document_is_a_clear_error(product: Product, name: str) -> None:
    data, status, code = BAD[name]
    answer = send(product, (f"../../etc/{name}.png", data))
    assert (answer.status_code, error_of(answer)["code"], error_of(answer)["param"]) == (status, code, "file")
    assert "/etc/" not in answer.text


def test_json_takes_base64_data_urls_and_no_private_address(product: Product) -> None:
    text = base64.b64encode(encoded(drawn(("Hello there.",)))).decode()
    for file in (text, f"data:image/png;base64,{text}", {"data": text, "filename": "hello.png"}):
        assert good(product.post("/v1/ocr", {"model": "rapidocr", "file": file}))["text"] == "Hello there."
    for url in ("http://127.0.0.1:1/x.png", "http://169.254.169.254/latest", f"{product.url}/healthz", "http://[::1]/"):
        error_of(product.post("/v1/ocr", {"file": url}))
    body = good(product.post("/v1/ocr/batch", {"files": [text, {"url": "http://10.0.0.1/a.png"}]}))
    assert body["results"][0]["text"] == "Hello there."
    assert body["results"][1]["error"]["param"] == "file"
    assert error_of(product.post("/v1/ocr", {"file": "file:///etc/passwd"}))["param"] == "file"


def test_wrong_fields_are_named(product: Product) -> None:
    page = ("a.png", ONE)
    assert error_of(send(product, page, dpi="10000"))["param"] == "dpi"
    assert error_of(send(product, page, dpi="many"))["param"] == "dpi"
    assert error_of(send(product, page, detect="detector"))["param"] == "detect"
    assert error_of(send(product, page, structured="true"))["param"] == "structured"
    assert error_of(send(product, page, colour="red"))["param"] == "colour"
    assert error_of(send(product, page, model="nobody"))["param"] == "model"
    assert error_of(product.post("/v1/ocr", {"model": MODEL}))["code"] == "no_document"
    assert error_of(product.post("/v1/ocr/batch", {"files": []}))["code"] == "no_document"
    blob = {"model": MODEL, "files": [{"name": "a", "pages": 1, "blob": "sha256:" + "0" * 64}]}
    error_of(product.post("/v1/ocr/batch", blob))
    headers = product.headers() | {"Content-Type": "multipart/form-data"}
    answer = httpx2.post(f"{product.url}/v1/ocr", content=b"--x\r\n", headers=headers, timeout=30)
    assert error_of(answer)["code"] == "invalid_content_type"
    headers["Content-Type"] += "; boundary=x"
    answer = httpx2.post(f"{product.url}/v1/ocr", content=b"--x\r\n", headers=headers, timeout=30)
    assert error_of(answer)["code"] == "invalid_multipart"


def test_no_key_no_answer(product: Product) -> None:
    assert send(product, ("a.png", ONE), key="sk-coderai-wrong").status_code == 401


def test_two_keys_do_not_see_each_other_s_runs(product: Product) -> None:
    keys = [product.new_key(name) for name in ("ann", "ben")]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda key: send(product, ("a.png", ONE), key=key), keys))
    assert [answer.status_code for answer in answers] == [200, 200]
    run = answers[0].headers["x-coderai-run"]
    assert httpx2.get(f"{product.url}/v1/runs/{run}", headers=product.headers(keys[1]), timeout=10).status_code == 404


def test_the_model_is_listed_and_a_request_planned(product: Product) -> None:
    models = {model["id"]: model for model in product.get("/v1/models")["data"]}
    assert models[MODEL]["capabilities"] == ["ocr"]
    asked = {"model": MODEL, "files": [{"name": "a.pdf", "pages": 20}, {"name": "b.png"}]}
    planned = good(product.post("/v1/plan", {"endpoint": "ocr", "request": asked}))
    steps = [step["id"] for step in planned["plan"]["steps"]]
    assert steps == ["part-1", "part-2", "part-3", "part-4", "merge"]
    assert planned["placements"][0]["placement"]["pool"] == "cpu"


def test_at_the_end_nothing_is_left_and_the_engine_still_lives(product: Product) -> None:
    engine = product.engines()[MODEL]
    assert (engine["state"], engine["in_flight"]) == ("ready", 0)
    assert engine["incarnation"] == 1
    eventually(lambda: not kept(product), 5, what=lambda: str(kept(product)))
    children = [words for words in product.processes().values() if "workers.documents." in words]
    assert children == []
    assert good(send(product, ("page.png", ONE)))["num_pages"] == 1
