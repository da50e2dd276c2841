"""Clients that ask the product again and again from threads, and remember every answer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

import httpx2

from tests.system.product import Product

CLIENT_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: its status (0 = the connection broke), run id, times, and the text of what went wrong."""

    status: int
    run: str
    began_s: float
    ended_s: float
    error: str = ""


@dataclass(slots=True)
class Load:
    """Threads that post `body` to `path`, each one request at a time, until the load ends."""

    product: Product
    path: str
    body: dict[str, object]
    answers: list[Answer] = field(default_factory=list)
    _over: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def ask_on(self) -> None:
        """One thread's work."""
        with httpx2.Client(timeout=CLIENT_LIMIT_S, headers=self.product.headers()) as client:
            while not self._over.is_set():
                answer = self._ask(client)
                with self._lock:
                    self.answers.append(answer)
                if answer.status != 200:
                    time.sleep(0.1)

    def _ask(self, client: httpx2.Client) -> Answer:
        began_s = time.monotonic()
        try:
            response = client.post(f"{self.product.url}{self.path}", json=self.body)
        except httpx2.HTTPError as error:
            return Answer(0, "", began_s, time.monotonic(), f"{type(error).__name__}: {error}")
        run = response.headers.get("x-coderai-run", "")
        wrong = "" if response.status_code == 200 else response.text
        return Answer(response.status_code, run, began_s, time.monotonic(), wrong)

    def end(self) -> None:
        self._over.set()

    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 200]

    def in_flight_at(self, moment_s: float) -> list[Answer]:
        """The requests that were being answered then."""
        return [answer for answer in self.answers if answer.began_s < moment_s < answer.ended_s]


@contextmanager
def asking(product: Product, path: str, body: dict[str, object], *, threads: int) -> Iterator[Load]:
    """Ask from so many threads while the block runs, and wait for the last answers after it."""
    load = Load(product, path, body)
    crowd = [Thread(target=load.ask_on, daemon=True) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    try:
        yield load
    finally:
        load.end()
        for thread in crowd:
            thread.join(CLIENT_LIMIT_S + 5)
