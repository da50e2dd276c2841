"""The hot routes' common path: key, limits, body, model, plan, run, account."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from api.accounting import Account
from api.asgi import ClientGone, Exchange, Receive, Scope, Send, parse_object
from api.jobs import LANE, Job, is_job, submit
from api.run import AS_IT_COMES, Delivery, Order, run_headers
from api.seals import Seals
from api.services import Services
from flows.distribute import Cut, Spread, in_parts
from flows.plan import Plan
from infra.clock import monotonic
from infra.database import Database
from infra.error_object import error_object
from infra.errors import Draining, InvalidRequest
from infra.tokens import Key
from infra.types import Json, RunId, new_run_id
from workers.affinity import conversation_key
from workers.types import Capability, ModelEntry

log = logging.getLogger("api.openai")

_CUT = "the server is shutting down, and could not wait for this request's end; ask again in a moment"


class Checked(NamedTuple):
    """A request that has passed its checks: the body for the planner, and what the front itself needs of it."""

    body: dict[str, Json]
    stream: bool = False


_WORDS = {"completed": None, "failed": "failed", "cancelled": "client_gone"}

_STREAMING = frozenset({"stream", "stream_format", "stream_options"})

Check = Callable[[dict[str, Json], ModelEntry], Checked]
Planner = Callable[[dict[str, Json], ModelEntry, str | None], Plan]
Begin = Callable[[Services, Exchange, Key, dict[str, Json], Plan], Awaitable[RunId]]
"""Begins what a checked request asks for in the background, and answers; gives its run."""


class Stores(Protocol):
    """What requests may refer to: what is stored here, and what their clients keep for us."""

    @property
    def database(self) -> Database:
        """Where it is stored."""
        ...

    @property
    def seals(self) -> Seals:
        """What opens the rest."""
        ...


Deliver = Callable[[Stores, Key, dict[str, Json]], Delivery]


class Memory(NamedTuple):
    """What of requests and their answers is stored: `recall` gives a request with what it goes on from, `deliver` the
    way of its answer to client and store."""

    recall: Callable[[Stores, Key, dict[str, Json], ModelEntry], Awaitable[dict[str, Json]]]
    deliver: Deliver


@dataclass(frozen=True, slots=True)
class Resource:
    """What tells one hot route from another. `check` raises InvalidRequest; `plan` is pure."""

    kind: Capability
    check: Check
    plan: Planner
    opening: Callable[[dict[str, Json]], str] | None = None
    """The stable opening of a checked request's conversation, where there is such a thing."""
    spread: Spread | None = None
    """Where a request may be cut into parts."""
    memory: Memory | None = None
    """Where requests refer to earlier ones."""
    deliver: Deliver | None = None
    """The way of an answer to its client and store, where they refer to none."""
    counted: str | None = None
    """What its requests are counted as, if not as their kind."""
    begin: Begin | None = None
    """Where a request may ask to be done in the background."""

    async def recalled(self, stores: Stores, key: Key, body: dict[str, Json], entry: ModelEntry) -> dict[str, Json]:
        """The request with what is stored of those before it.

        Raises:
            InvalidRequest, NotFound: it cannot be gone on from there.
        """
        return body if self.memory is None else await self.memory.recall(stores, key, body, entry)

    def as_job(self, body: dict[str, Json]) -> dict[str, Json]:
        """The request without what a job's answer, which is fetched from its run, cannot have: a stream, a store.

        Raises:
            InvalidRequest: it asks to be done in the background, which it is.
        """
        if self.in_background(body):
            raise InvalidRequest(
                "this request is carried out in the background as it is: leave out 'background'", param="background"
            )
        whole = {name: value for name, value in body.items() if name not in _STREAMING}
        return whole if self.memory is None else whole | {"store": False}

    def in_background(self, body: dict[str, Json]) -> bool:
        """Whether the request asks to be done in the background."""
        return self.begin is not None and body.get("background") is True

    def delivery(self, stores: Stores, key: Key, body: dict[str, Json]) -> Delivery:
        """How the answer of a checked request reaches its client."""
        deliver = self.deliver if self.memory is None else self.memory.deliver
        return AS_IT_COMES if deliver is None else deliver(stores, key, body)

    def planned(
        self,
        body: dict[str, Json],
        entry: ModelEntry,
        session: str | None,
        *,
        affine: bool = True,
        cut: Cut | None = None,
    ) -> tuple[Plan, bool]:
        """The plan of a request, and whether its answer is streamed; `affine`: its conversation's place matters.

        Without `cut` nothing is split.

        Raises:
            InvalidRequest: the body is wrong, or the model does not do this.
        """
        if self.kind not in entry.capabilities:
            does = ", ".join(entry.capabilities)
            raise InvalidRequest(
                f"model '{entry.name}' does not do {self.kind}; it does {does}", param="model", code="unsupported_model"
            )
        checked = self.check(body, entry)
        affinity_key = None
        if affine and self.opening is not None:
            user = body.get("user")
            affinity_key = conversation_key(session, user if isinstance(user, str) else None, self.opening(body))
        if self.spread is not None and cut is not None and not checked.stream:
            parts = in_parts(self.spread, checked.body, entry, cut)
            if parts is not None:
                return parts, False
        return self.plan(checked.body, entry, affinity_key), checked.stream


class Endpoint:
    """One hot route as an ASGI application."""

    def __init__(self, services: Services, resource: Resource) -> None:
        self._services = services
        self._resource = resource
        self._max_body_bytes = services.settings.server.max_body_mb * 2**20

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever it is."""
        exchange = Exchange(scope, receive, send)
        run = new_run_id()
        account = Account(run, self._resource.counted or self._resource.kind, monotonic())
        services = self._services
        services.accounting.open()
        try:
            await self._answer(exchange, run, account)
        except ClientGone:
            account.error = "client_gone"
        except asyncio.CancelledError:
            if not services.fleet.draining or exchange.answered:
                raise
            await self._fail(exchange, Draining(_CUT, retry_after_s=5), run, account)
        except Exception as error:  # noqa: BLE001  # the edge: whatever went wrong is answered, counted and logged
            await self._fail(exchange, error, run, account)
        finally:
            account.status = exchange.status
            services.accounting.close(account, monotonic())

    async def _answer(self, exchange: Exchange, run: RunId, account: Account) -> None:
        services = self._services
        key = services.auth.require(exchange.headers, "user")
        account.key = key.name
        services.require_open()
        services.limits.enter(key.name)
        try:
            request, body = await self._read(exchange)
            entry = services.shelf.catalogue.get(_model_of(body))
            account.model = entry.name
            plan, stream = self._resource.planned(
                await self._resource.recalled(services, key, body, entry),
                entry,
                exchange.header(b"x-session-id"),
                affine=services.fleet.has_choice(entry),
                cut=Cut(services.sites),
            )
            lane = exchange.header(LANE)
            job = lane is not None and is_job(lane)
            if self._resource.begin is not None and self._resource.in_background(body):
                account.run = await self._resource.begin(services, exchange, key, body, plan)
                return
            if job:
                account.run = await submit(services, exchange, Job(plan.flow, entry.name, key.name, body, stream))
                return
            delivery = self._delivery(exchange, key, body)
            outcome = await services.runner.run(exchange, Order(run, plan, entry, key, request, stream, delivery))
            account.engine, account.record = outcome.recorder.engine, outcome.recorder.record
            account.error = _WORDS[account.record.status]
            if outcome.unanswered is not None:
                raise outcome.unanswered
        finally:
            services.limits.leave(key.name)

    async def _read(self, exchange: Exchange) -> tuple[bytes, dict[str, Json]]:
        """The request as it is kept, and as an object."""
        request = await exchange.body(self._max_body_bytes)
        return request, parse_object(request)

    def _delivery(self, _exchange: Exchange, key: Key, body: dict[str, Json]) -> Delivery:
        """How the answer of a checked request reaches its client."""
        return self._resource.delivery(self._services, key, body)

    async def _fail(self, exchange: Exchange, error: Exception, run: RunId, account: Account) -> None:
        code = error_object(error)["code"]
        account.error = code if isinstance(code, str) else "error"
        if code == "internal_error":
            log.error("run %s failed", run, exc_info=error)
        if not exchange.answered:
            await exchange.fail(error, run_headers(run, account.engine))


def _model_of(body: dict[str, Json]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("you must provide a model: name one of GET /v1/models in the field 'model'", param="model")
    return model
