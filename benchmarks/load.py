"""The load generator: a closed loop with a fixed number of requests in flight, on keep-alive connections.

A process of its own that reads one case a line of JSON from its standard input and answers with one line of JSON: so
that its start is never inside a measurement, and its CPU never in the process that is measured. Raw protocols, because
every microsecond it takes is a microsecond that the proxy under test waits.
"""

import asyncio
import gc
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import httptools
import orjson
import uvloop

_STRAGGLERS_S = 60.0
"""Seconds that requests in flight get to finish once the time is up; what is left then counts as an error."""


@dataclass(frozen=True)
class Case:
    """What to send, and for how long: until `seconds` are over or `requests` are sent (0 = no such limit)."""

    port: int
    body: str
    stream: bool
    in_flight: int
    seconds: float = 0.0
    requests: int = 0
    spread_s: float = 0.0
    """The connections begin evenly over this time, so that streams do not march in step."""
    api_key: str = ""
    path: str = "/v1/chat/completions"


@dataclass(frozen=True)
class Measured:
    """What came of a case. Latencies are in microseconds, of good answers only."""

    good: int
    bad: int
    seconds: float
    p50_us: float
    p99_us: float
    first_byte_p50_us: float
    complaints: dict[str, int] = field(default_factory=dict)
    """How often each thing was wrong with a bad answer."""

    @property
    def per_second(self) -> float:
        """Good answers a second."""
        return self.good / self.seconds if self.seconds else 0.0


class _Run:
    """What the connections of one case share."""

    def __init__(self, case: Case) -> None:
        body = case.body.encode()
        head = f"POST {case.path} HTTP/1.1\r\nHost: 127.0.0.1:{case.port}\r\nContent-Type: application/json\r\n"
        if case.api_key:
            head += f"Authorization: Bearer {case.api_key}\r\n"
        self.case = case
        self.request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.latencies: list[float] = []
        self.first_bytes: list[float] = []
        self.complaints: dict[str, int] = {}
        self.sent = 0
        self.deadline = time.perf_counter() + case.seconds if case.seconds else float("inf")

    def more(self) -> bool:
        """Take the right to send one more request."""
        if time.perf_counter() >= self.deadline or (self.case.requests and self.sent >= self.case.requests):
            return False
        self.sent += 1
        return True

    def complain(self, what: str) -> None:
        """Count a bad answer."""
        self.complaints[what] = self.complaints.get(what, 0) + 1


class _Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, with the same methods
        self._send()

    def _send(self) -> None:
        if not self._run.more():
            self._transport.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._tail = b""
        self._saw_usage = False
        self._first_byte = 0.0
        self._busy = True
        self._started = time.perf_counter()
        self._transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")

    def on_body(self, body: bytes) -> None:
        """Note what a complete answer must contain, without keeping the answer."""
        if not self._first_byte:
            self._first_byte = time.perf_counter()
        seen = self._tail + body
        self._saw_usage = self._saw_usage or b'"completion_tokens":' in seen
        self._tail = seen[-64:]

    def on_message_complete(self) -> None:
        """The answer is whole: judge it, and go on."""
        ended = time.perf_counter()
        self._busy = False
        complaint = self._complaint()
        if complaint:
            self._run.complain(complaint)
        else:
            self._run.latencies.append(ended - self._started)
            self._run.first_bytes.append(self._first_byte - self._started)
        if self._parser.should_keep_alive():
            asyncio.get_running_loop().call_soon(self._send)
        else:
            self._transport.close()

    def _complaint(self) -> str:
        status = self._parser.get_status_code()
        if status != 200:
            return f"status {status}"
        if not self._saw_usage:
            return "no usage"
        if self._run.case.stream and not self._tail.rstrip().endswith(b"data: [DONE]"):
            return "no [DONE] at the end"
        return ""

    def _fail(self, what: str) -> None:
        self._busy = False
        self._run.complain(what)
        self._transport.close()

    def abandon(self) -> None:
        """Give up the request in flight."""
        if self._busy:
            self._fail("not answered in time")

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection that breaks in the middle of a request is a bad answer."""
        if self._busy:
            self._busy = False
            self._run.complain(f"connection lost: {exc or 'closed'}")
        if not self.done.done():
            self.done.set_result(None)


async def _keep_one_in_flight(run: _Run, stop_at: float, begin_after_s: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(begin_after_s)
    while time.perf_counter() < run.deadline and (not run.case.requests or run.sent < run.case.requests):
        try:
            _, connection = await loop.create_connection(lambda: _Connection(run), "127.0.0.1", run.case.port)
        except OSError as error:
            run.more()
            run.complain(f"cannot connect: {error}")
            await asyncio.sleep(0.05)
            continue
        timeout_s = max(0.0, stop_at - time.perf_counter()) if stop_at != float("inf") else None
        _, waiting = await asyncio.wait([connection.done], timeout=timeout_s)
        if waiting:
            connection.abandon()


async def drive(case: Case) -> Measured:
    """Run one case to its end."""
    run = _Run(case)
    stop_at = run.deadline + _STRAGGLERS_S
    step_s = case.spread_s / case.in_flight
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    await asyncio.gather(*(_keep_one_in_flight(run, stop_at, step_s * number) for number in range(case.in_flight)))
    seconds = time.perf_counter() - started
    latencies, first_bytes = sorted(run.latencies), sorted(run.first_bytes)
    return Measured(
        good=len(latencies),
        bad=sum(run.complaints.values()),
        seconds=seconds,
        p50_us=quantile(latencies, 0.5) * 1e6,
        p99_us=quantile(latencies, 0.99) * 1e6,
        first_byte_p50_us=quantile(first_bytes, 0.5) * 1e6,
        complaints=run.complaints,
    )


def quantile(ordered: list[float], share: float) -> float:
    """The value below which `share` of an ordered list lies; 0 of an empty one."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def main() -> None:
    """Answer cases from standard input until it ends."""
    for line in sys.stdin:
        measured = uvloop.run(drive(Case(**orjson.loads(line))))
        sys.stdout.write(orjson.dumps(asdict(measured)).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
