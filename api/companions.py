"""The two processes beside the front: the flow-run server, and the worker process of the job lane.

The front asks its supervisor for them and goes on; they come when they come, and what is so at every moment stands in
the `PrefectAddress`. A front that has restarted takes over what the one before it had started.
"""

import asyncio
import contextlib
import hashlib
import logging
from http import HTTPStatus

from infra.prefect_address import PrefectAddress
from infra.prefect_child.spec import API_BASE, prefect_spec
from infra.settings import Settings
from infra.supervisor.types import Children, ChildSpec, ChildState
from workers.jobs.spec import NAME as WORKER
from workers.jobs.spec import worker_spec
from workers.transport import Transport

log = logging.getLogger("api.companions")

PREFECT = "prefect"
LOOK_S = 0.25
"""Seconds between looks at a server that is starting."""
_HEALTH_TIMEOUT_S = 2.0


class Companions:
    """Keeps the two processes, and keeps `address` true; they outlive it, being the supervisor's."""

    def __init__(
        self,
        children: Children,
        settings: Settings,
        internal_token: str,
        address: PrefectAddress,
        *,
        look_s: float = LOOK_S,
    ) -> None:
        self._children = children
        self._settings = settings
        self._token = internal_token
        self._address = address
        self._look_s = look_s
        self._changed = asyncio.Event()
        self._healthy = 0
        """The incarnation of the server that has answered its health check."""
        self._said: dict[str, str] = {}
        children.subscribe(self._on_child)

    async def keep(self) -> None:
        """Start what is missing, follow what happens to it, for ever.

        Raises:
            EngineFailed: the supervisor cannot be asked.
        """
        if self._settings.flows.server == "off":
            self._down("it is switched off: flows.server is 'off'")
            await asyncio.gather(*(self._children.stop(name) for name in (WORKER, PREFECT)))
            await asyncio.Event().wait()
        transport = Transport()
        try:
            while True:
                self._changed.clear()
                settled = await self._look(transport)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), None if settled else self._look_s)
        finally:
            await transport.close()

    async def _look(self, transport: Transport) -> bool:
        """One look; whether nothing is to be done before a child changes."""
        server = await self._kept(prefect_spec(self._settings, self._token))
        self._tell(server)
        if server.status != "running" or server.port is None:
            self._healthy = 0
            self._down(_reason(server))
            return True
        url = f"http://127.0.0.1:{server.port}"
        if self._healthy != server.incarnation:
            if not await self._answers(url, transport):
                self._down("it is starting")
                return False
            self._healthy = server.incarnation
            log.info("the flow-run server answers at %s", url)
        self._address.url, self._address.reason = url, ""
        self._tell(await self._kept(worker_spec(self._settings, url, self._token)))
        return True

    async def _kept(self, spec: ChildSpec) -> ChildState:
        """The child as it is now, started if there is none; one that runs by another spec is replaced."""
        spec = spec.model_copy(update={"note": {"spec": _digest(spec)}})
        state = self._children.states().get(spec.name)
        if state is not None and state.status != "stopped":
            if state.note == spec.note:
                return state
            log.info("%s is started anew: what it is to be told has changed", spec.name)
            await self._children.stop(spec.name)
        return await self._children.start(spec)

    async def _answers(self, url: str, transport: Transport) -> bool:
        headers = {"Authorization": self._address.authorization}
        return await transport.alive(f"{url}{API_BASE}/health", headers, _HEALTH_TIMEOUT_S) == HTTPStatus.OK

    def _down(self, reason: str) -> None:
        self._address.url, self._address.reason = None, reason

    def _tell(self, state: ChildState) -> None:
        """Say in the log what is wrong with a child, once."""
        wrong = "" if state.status == "running" else _reason(state)
        if wrong and self._said.get(state.name) != wrong:
            log.warning("%s: %s", state.name, wrong)
        self._said[state.name] = wrong

    def _on_child(self, state: ChildState) -> None:
        if state.name in (PREFECT, WORKER):
            self._changed.set()


def _reason(state: ChildState) -> str:
    """Why the child does not serve."""
    why = state.reason or "it said nothing"
    if state.status == "quarantined":
        return f"it was given up after it had ended too often: {why}; mend that and restart `coderai serve`"
    if state.status == "backoff":
        return f"it has ended and is started again: {why}"
    return f"it was stopped: {why}"


def _digest(spec: ChildSpec) -> str:
    """What tells one spec from another, its secrets included, and tells nothing of them."""
    text = spec.model_dump_json(exclude={"note"})
    return hashlib.sha256(text.encode()).hexdigest()
