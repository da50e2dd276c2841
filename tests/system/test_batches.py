"""Files and batches of a whole install: a front killed in mid-upload, and batches over real models."""

import os
import signal
import socket
import sqlite3
import time
from contextlib import closing
from typing import Any

import orjson
from openai import OpenAI
from openai.types import Batch

from tests.system.conftest import MakeProduct
from tests.system.product import Product, eventually

CHAT, EMBEDDER = "smollm2-135m-instruct", "all-minilm-l6-v2"
CHAT_URL, EMBED_URL = "/v1/chat/completions", "/v1/embeddings"


def test_a_front_killed_in_mid_upload_leaves_no_half_file(make_product: MakeProduct) -> None:
    product = make_product(settings={"FLOWS__SERVER": "off"})
    product.start()
    port = int(product.url.rpartition(":")[2])
    authorization = product.headers()["Authorization"]
    head = (
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\nContent-Length: 90000000\r\n"
        'Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\nContent-Disposition: form-data; name="file"; '
        'filename="a"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + b"x" * 5_000_000)
        eventually(lambda: _stored(product) or None, 10, what=lambda: "nothing has come to the disk")
        os.kill(product.front_pid(), signal.SIGKILL)
    time.sleep(5.5)  # so young a file may be one that is just being made
    product.stop()
    product.start()
    eventually(lambda: not _stored(product), 10, what=lambda: f"{_stored(product)} is left")
    assert product.get("/v1/files")["data"] == []


def test_batches_over_real_models(make_product: MakeProduct) -> None:
    product = make_product(settings={"FLOWS__SERVER": "child"})
    product.start()
    with product.client() as client:
        chats = [_line(f"c{n}", CHAT_URL, _chat(n)) for n in range(6)]
        broken = _line("nobody", CHAT_URL, {"model": "nobody", "messages": []})
        embeds = [_line(f"e{n}", EMBED_URL, {"model": EMBEDDER, "input": f"text {n}"}) for n in range(6)]
        first, second = _begun(client, CHAT_URL, [*chats, broken]), _begun(client, EMBED_URL, embeds)
        chatted, embedded = _ended(client, first), _ended(client, second)
        assert chatted.request_counts is not None
        assert (chatted.status, chatted.request_counts.completed, chatted.request_counts.failed) == ("completed", 6, 1)
        answers = _results(client, chatted.output_file_id)
        assert {line["custom_id"] for line in answers} == {f"c{n}" for n in range(6)}
        assert all(line["response"]["body"]["choices"][0]["message"]["content"] for line in answers)
        (error,) = _results(client, chatted.error_file_id)
        assert (error["custom_id"], error["response"]["status_code"]) == ("nobody", 404)
        assert error["response"]["body"]["error"]["code"] == "model_not_found"
        vectors = _results(client, embedded.output_file_id)
        for batch, model in ((chatted, CHAT), (embedded, EMBEDDER)):
            assert batch.usage is not None
            assert batch.model == model
            assert batch.usage.input_tokens > 6
            assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens
        assert {len(line["response"]["body"]["data"][0]["embedding"]) for line in vectors} == {384}
        for batch, model in ((chatted, CHAT), (embedded, EMBEDDER)):
            assert batch.usage is not None
            _told_once(product, str(batch.model_extra and batch.model_extra["run"]), model, batch.usage.total_tokens)


def _told_once(product: Product, run: str, model: str, tokens: int) -> None:
    """The run has its batch's tokens, also where the front that saw it is gone; its key is charged for them once."""
    eventually(lambda: _charged(product, model) == tokens, 10, what=lambda: f"{_charged(product, model)}, not {tokens}")
    os.kill(product.front_pid(), signal.SIGKILL)
    eventually(product.healthy, 20, what=lambda: product.log)
    eventually(lambda: product.get("/v1/runs")["incomplete"] is None, 20, what=lambda: product.log[-2000:])
    usage = product.get(f"/v1/runs/{run}")["usage"]
    assert (usage["total_tokens"], usage["units"]) == (tokens, 0.0)
    assert _charged(product, model) == tokens


def _charged(product: Product, model: str) -> int:
    with closing(sqlite3.connect(product.home / "coderai.db")) as database:
        query = "SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) FROM usage WHERE model = ?"
        return int(database.execute(query, (model,)).fetchone()[0])


def _stored(product: Product) -> list[str]:
    return [str(path) for path in (product.home / "files").rglob("*") if path.is_file()]


def _chat(number: int) -> dict[str, Any]:
    return {"model": CHAT, "messages": [{"role": "user", "content": f"Say {number}."}], "max_tokens": 8}


def _line(custom: str, url: str, body: dict[str, Any]) -> bytes:
    return orjson.dumps({"custom_id": custom, "method": "POST", "url": url, "body": body})


def _begun(client: OpenAI, url: Any, lines: list[bytes]) -> str:
    file = client.files.create(file=("in.jsonl", b"\n".join(lines)), purpose="batch")

    def begin() -> str | None:
        answer = client.batches.with_raw_response.create(completion_window="24h", endpoint=url, input_file_id=file.id)
        return answer.parse().id

    made = eventually(lambda: _unless_down(begin), 90, what=lambda: "the flow-run server does not come", pause_s=1)
    assert made is not None
    return made


def _unless_down(begin: Any) -> str | None:
    from openai import InternalServerError

    try:
        made: str | None = begin()
    except InternalServerError as error:
        if error.status_code != 503:
            raise
        return None
    return made


def _ended(client: OpenAI, batch: str) -> Batch:
    def over() -> Batch | None:
        found = client.batches.retrieve(batch)
        return found if found.status in ("completed", "failed", "expired", "cancelled") else None

    ended = eventually(over, 120, what=lambda: str(client.batches.retrieve(batch)), pause_s=0.5)
    assert ended is not None
    return ended


def _results(client: OpenAI, file: str | None) -> list[dict[str, Any]]:
    assert file is not None
    return [orjson.loads(line) for line in client.files.content(file).content.splitlines()]
