"""Far services that speak OpenAI: one engine an entry, reached at its `service_url`, checked before it is trusted."""

import asyncio

from infra.clock import Clock, monotonic
from infra.errors import ServiceDown
from infra.types import EngineId, PoolId
from workers.live import Engine
from workers.transport import Transport
from workers.types import ModelEntry

CHECK_EVERY_S = 30.0
"""A service that answered is taken as alive for this long."""
CHECK_TIMEOUT_S = 3.0


def service_base(url: str) -> str:
    """The service's `/v1` root; the configured URL may end in `/v1` or not."""
    root = url.rstrip("/").removesuffix("/v1")
    return f"{root}/v1"


def service_engine(entry: ModelEntry) -> Engine:
    """The engine of an entry that has a `service_url`."""
    url = entry.service_url or ""
    host = url.split("://", 1)[-1].split("/", 1)[0]
    pool = PoolId(f"service:{host}")
    headers = {"Content-Type": "application/json"}
    if entry.api_key is not None:
        headers["Authorization"] = f"Bearer {entry.api_key.get_secret_value()}"
    return Engine(
        id=EngineId(f"{pool}/{entry.name}"),
        entry=entry,
        pool=pool,
        local=False,
        slots=entry.max_instances,
        base_url=service_base(url),
        headers=headers,
        state="ready",
        incarnation=1,
    )


class ServiceChecks:
    """Health of far services: asked at most once at a time each, remembered for a while, forgotten on a failure."""

    def __init__(self, transport: Transport, clock: Clock = monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._alive_until: dict[str, float] = {}
        self._running: dict[str, asyncio.Task[int]] = {}

    def alive(self, engine: Engine) -> bool:
        """Whether the service has answered a short while ago; what its last check said is over then."""
        alive = self._alive_until.get(engine.base_url, 0.0) > self._clock()
        if alive:
            engine.reason = ""  # it may be another model's request that has found the service back
        return alive

    async def ensure(self, engine: Engine) -> None:
        """Return if the service answers.

        Raises:
            ServiceDown: it does not; asked anew each time, so that a service that returns serves at once.
        """
        if self.alive(engine):
            return
        task = self._running.get(engine.base_url)
        if task is None:
            task = asyncio.ensure_future(self._ask(engine))
            self._running[engine.base_url] = task
            task.add_done_callback(lambda _done: self._running.pop(engine.base_url, None))
        status = await asyncio.shield(task)
        if status == 0 or status >= 500:
            engine.reason = "it is not answering its health check"
            raise ServiceDown(
                f"configured service_url {engine.entry.service_url} is not answering its health check"
                + (f" (HTTP {status})" if status else "")
            )
        engine.reason = ""
        self._alive_until[engine.base_url] = self._clock() + CHECK_EVERY_S

    def forget(self, engine: Engine) -> None:
        """A request failed there: the next one asks first."""
        self._alive_until.pop(engine.base_url, None)

    async def _ask(self, engine: Engine) -> int:
        """GET `/v1/models`, which all of them have; a refusal (401, 404) is an answer too."""
        return await self._transport.alive(f"{engine.base_url}/models", engine.headers, CHECK_TIMEOUT_S)
