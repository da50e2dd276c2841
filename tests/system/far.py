"""A far service for system tests: it answers like an OpenAI server, or fails when it is told to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = {
    "id": "chatcmpl-far",
    "object": "chat.completion",
    "created": 1,
    "model": "far",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "from afar"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


class Far(ThreadingHTTPServer):
    """`broken`: every request is answered with 500. `asked` are the bodies that came; none is answered while `open` is
    not set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.broken = False
        self.open = threading.Event()
        self.open.set()
        self.asked: list[dict[str, object]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def model(self) -> str:
        """The settings of a model `far` that it serves."""
        return f'[[model]]\nname = "far"\nservice_url = "{self.url}"\ncapabilities = ["chat"]\n'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Far

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": [{"id": "far", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.open.wait()
        if self.server.broken:
            self._answer(500, {"error": {"message": "out of order", "type": "server_error"}})
        else:
            self._answer(200, ANSWER)

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class names it
        """Quiet."""


@contextmanager
def far_service() -> Iterator[Far]:
    """A running one."""
    server = Far()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.open.set()
        server.shutdown()
        server.server_close()
        thread.join()
