"""One request over HTTP on loopback, by the standard library alone."""

import http.client
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """A status and the whole body."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body, where it is text."""
        return self.body.decode(errors="replace")


def post(
    port: int, path: str, body: bytes, key: str, within_s: float = 120.0, extra: dict[str, str] | None = None
) -> Answer:
    """POST a JSON document, with `extra` headers.

    Raises:
        OSError: nobody listens, or the answer did not come in time.
    """
    return _exchange(port, "POST", path, body, _headers(body, key) | (extra or {}), within_s)


def get(port: int, path: str, key: str, within_s: float = 30.0) -> Answer:
    """GET a path.

    Raises:
        OSError: nobody listens, or the answer did not come in time.
    """
    return _exchange(port, "GET", path, None, _headers(None, key), within_s)


def delete(port: int, path: str, key: str, within_s: float = 30.0) -> Answer:
    """DELETE a path.

    Raises:
        OSError: nobody listens, or the answer did not come in time.
    """
    return _exchange(port, "DELETE", path, None, _headers(None, key), within_s)


def stream(port: int, path: str, body: bytes, key: str, within_s: float = 120.0) -> Iterator[str]:
    """POST a JSON document and give the data of each server-sent event as it comes, up to `[DONE]`.

    Raises:
        OSError: nobody listens, the answer is not 200, or the next line did not come in time.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=within_s)
    try:
        connection.request("POST", path, body, _headers(body, key))
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"{path} answered {response.status}: {response.read(500).decode(errors='replace')}")
        while line := response.readline():
            data = line.decode().strip().removeprefix("data:").strip()
            if data == "[DONE]":
                return
            if data and line.startswith(b"data:"):
                yield data
    finally:
        connection.close()


def _headers(body: bytes | None, key: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    return {**headers, "Authorization": f"Bearer {key}"} if key else headers


def _exchange(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str], within_s: float
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=within_s)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    finally:
        connection.close()
