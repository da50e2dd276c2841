"""Prefect's REST API, as a client of the child that serves it. Prefect itself is never imported here."""

import asyncio
import logging
from http import HTTPStatus
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

import aiohttp
import orjson
from pydantic import TypeAdapter, ValidationError

from infra.errors import Conflict, FlowsUnavailable, InvalidRequest, NotFound
from infra.prefect_address import PrefectAddress
from infra.prefect_shapes import (
    Artifact,
    FlowRun,
    FlowState,
    LogLine,
    RunFilter,
    StateType,
    TaskRun,
    Transition,
    WorkPoolState,
)
from infra.types import FarShape, Json, PoolId, RunId

log = logging.getLogger("infra.prefect_api")

ANSWER_S = 15.0
"""Seconds that an answer may take."""
COME_BACK_S = 5.0
PAGE = 200
"""The most that Prefect answers at once (its setting `PREFECT_SERVER_API_DEFAULT_LIMIT`)."""
_LOCKED_PAUSES_S = (0.1, 0.3, 0.8)
"""SQLite has one writer: Prefect answers 503, having done nothing, where it found another one at work."""

T = TypeVar("T")
Shape = TypeVar("Shape", bound=FarShape)


class _Named(FarShape):
    """Something with an id and a name: a flow, a deployment."""

    id: UUID
    name: str


class _Details(FarShape):
    reason: str | None = None


class _Orchestrated(FarShape):
    status: str
    state: FlowState | None = None
    details: _Details = _Details()


_RUNS = TypeAdapter(list[FlowRun])
_TASK_RUNS = TypeAdapter(list[TaskRun])
_LOGS = TypeAdapter(list[LogLine])
_ARTIFACTS = TypeAdapter(list[Artifact])
_POOLS = TypeAdapter(list[WorkPoolState])
_COUNT = TypeAdapter(int)


class PrefectApi:
    """Asks the Prefect child at `address`; its connections are opened when they are needed.

    Every method raises FlowsUnavailable while nobody answers there, or not in time, or not as Prefect does.
    """

    def __init__(self, address: PrefectAddress, *, answer_s: float = ANSWER_S) -> None:
        self._address = address
        self._limit = aiohttp.ClientTimeout(total=answer_s)
        self._session: aiohttp.ClientSession | None = None
        self._deployments: dict[str, UUID] = {}
        self._flow_names: dict[UUID, str] = {}

    async def __aenter__(self) -> "PrefectApi":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def work_pools(self) -> list[WorkPoolState]:
        """Every work pool, by name."""
        found: list[WorkPoolState] = []
        while len(found) % PAGE == 0:
            page = await self._post("/work_pools/filter", {"limit": PAGE, "offset": len(found)}, _POOLS)
            if not page:
                break
            found += page
        return sorted(found, key=lambda pool: pool.name)

    async def change_pool(self, pool: PoolId, changes: dict[str, Json]) -> None:
        """Set `is_paused` or `concurrency_limit` (None for no limit) of a work pool.

        Raises:
            NotFound: there is no such pool.
        """
        if await self._ask("PATCH", f"/work_pools/{quote(pool, safe='')}", changes) is None:
            raise NotFound(f"there is no work pool {pool!r}; `coderai pools list` names them", param="pool")

    async def run(self, run: RunId) -> FlowRun | None:
        """One flow run; None where there is none of that id."""
        path = _run_path(run)
        answer = await self._ask("GET", path) if path else None
        return None if answer is None else _read(FlowRun, answer)

    async def runs(self, wanted: RunFilter, limit: int = PAGE, offset: int = 0) -> list[FlowRun]:
        """Flow runs, the latest first; at most 200 at once."""
        asked: dict[str, Json] = {"sort": "START_TIME_DESC", "limit": min(limit, PAGE), "offset": offset}
        return await self._post("/flow_runs/filter", asked | {"flow_runs": wanted.to_json()}, _RUNS)

    async def count(self, wanted: RunFilter) -> int:
        """How many there are."""
        return await self._post("/flow_runs/count", {"flow_runs": wanted.to_json()}, _COUNT)

    async def task_runs(self, run: RunId) -> list[TaskRun]:
        """The task runs of a flow run, in the order of their starts; the first 200."""
        return await self._post(
            "/task_runs/filter", _of_run(run) | {"sort": "EXPECTED_START_TIME_ASC", "limit": PAGE}, _TASK_RUNS
        )

    async def logs(self, run: RunId, *, limit: int = PAGE) -> list[LogLine]:
        """The first lines of a flow run's log."""
        asked: dict[str, Json] = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC", "limit": limit}
        return await self._post("/logs/filter", asked, _LOGS)

    async def artifacts(self, run: RunId) -> list[Artifact]:
        """What a flow run shows."""
        return await self._post("/artifacts/filter", _of_run(run) | {"limit": PAGE}, _ARTIFACTS)

    async def flow_name(self, flow: UUID) -> str | None:
        """A flow's name, which never changes; None where there is no such flow."""
        if flow not in self._flow_names:
            answer = await self._ask("GET", f"/flows/{flow}")
            if answer is None:
                return None
            self._flow_names[flow] = _read(_Named, answer).name
        return self._flow_names[flow]

    async def set_state(
        self, run: RunId, kind: StateType, name: str | None = None, message: str = "", *, force: bool = False
    ) -> Transition:
        """Wish for a state; with `force` Prefect's rules are passed over.

        Raises:
            NotFound: there is no such run.
        """
        state: dict[str, Json] = {"type": kind, "name": name, "message": message or None}
        path = _run_path(run)
        answer = await self._ask("POST", f"{path}/set_state", {"state": state, "force": force}) if path else None
        if answer is None:
            raise NotFound(f"there is no flow run {run!r}")
        told = _read(_Orchestrated, answer)
        return Transition(accepted=told.status == "ACCEPT", reason=told.details.reason or "", state=told.state)

    async def end(self, run: RunId, why: str) -> Transition:
        """Wish for a run's end. Prefect decides by what the run is at that moment: one that waits is over, one that was
        handed out is Cancelling, which whoever has it hears.

        Raises:
            NotFound: there is no such run.
        """
        told = await self.set_state(run, "CANCELLING", "Cancelling", why)
        if told.accepted or told.state is None or told.state.type != "CANCELLED":
            return told
        return await self.set_state(run, "CANCELLED", "Cancelled", why)  # it is: now it says why, too

    async def create_run(
        self, deployment: str, parameters: dict[str, Json], tags: list[str], idempotency_key: str | None = None
    ) -> FlowRun:
        """A new flow run of the deployment `flow/name`, to begin at once; for a key that was used before, that run.

        Raises:
            Conflict: the deployment does not take these parameters.
        """
        flow = deployment.partition("/")[0]
        asked: dict[str, Json] = {
            "name": f"{flow}-{uuid4().hex[:8]}",
            "parameters": parameters,
            "tags": [*tags],
            # always one: with it the request may be sent again
            "idempotency_key": idempotency_key or uuid4().hex,
        }
        for _ in range(2):
            answer = await self._ask(
                "POST", f"/deployments/{await self._deployment(deployment)}/create_flow_run", asked
            )
            if answer is not None:
                return _read(FlowRun, answer)
            self._deployments.pop(deployment, None)  # it was deleted, or made anew
        raise _unavailable(f"it has lost the deployment {deployment}")

    async def _deployment(self, name: str) -> UUID:
        known = self._deployments.get(name)
        if known is None:
            answer = await self._ask("GET", f"/deployments/name/{quote(name)}")
            if answer is None:
                raise _unavailable(f"it has no deployment {name} (yet)")
            known = self._deployments[name] = _read(_Named, answer).id
        return known

    async def _post(self, path: str, body: dict[str, Json], shape: TypeAdapter[T]) -> T:
        answer = await self._ask("POST", path, body)
        if answer is None:
            raise _unavailable(f"it does not know {path}")
        return _validated(shape, answer)

    async def _ask(self, method: str, path: str, body: dict[str, Json] | None = None) -> bytes | None:
        """The answer's body; None for 404."""
        for pause_s in (*_LOCKED_PAUSES_S, None):
            status, answer = await self._send(method, path, body)
            if status != HTTPStatus.SERVICE_UNAVAILABLE or pause_s is None:
                break
            await asyncio.sleep(pause_s)
        if status < HTTPStatus.BAD_REQUEST:
            return answer
        if status == HTTPStatus.NOT_FOUND:
            return None
        words = answer[:500].decode("utf-8", "replace")
        if status == HTTPStatus.CONFLICT:
            raise Conflict(f"the flow-run server refused: {words}")
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise InvalidRequest(f"the flow-run server refused: {words}")
        log.warning("%s %s answered %d: %s", method, path, status, words)
        raise _unavailable(f"it answered HTTP {status}")

    async def _send(self, method: str, path: str, body: dict[str, Json] | None) -> tuple[int, bytes]:
        url, reason = self._address.url, self._address.reason
        if url is None:
            raise _unavailable(reason)
        headers = {"Authorization": self._address.authorization, "Content-Type": "application/json"}
        data = None if body is None else orjson.dumps(body)
        try:
            async with self._opened().request(
                method, f"{url}/flows/api{path}", data=data, headers=headers, allow_redirects=False
            ) as answer:
                return answer.status, await answer.read()
        except TimeoutError as error:
            raise _unavailable(f"it did not answer within {self._limit.total:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unavailable(f"it did not answer: {error or type(error).__name__}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A connection for each question: one that was kept might be gone with a child that was restarted.
            connector = aiohttp.TCPConnector(limit=8, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=self._limit, trust_env=False
            )
        return self._session


def _validated(shape: TypeAdapter[T], answer: bytes) -> T:
    try:
        return shape.validate_json(answer)
    except ValidationError as error:
        raise _unknown_shape(error) from error


def _read(shape: type[Shape], answer: bytes) -> Shape:
    try:
        return shape.model_validate_json(answer)
    except ValidationError as error:
        raise _unknown_shape(error) from error


def _unknown_shape(error: ValidationError) -> FlowsUnavailable:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return _unavailable(f"its answer is not one of Prefect 3.9: {place}: {first['msg']}")


def _run_path(run: str) -> str | None:
    """Where a flow run stands; None for what is no UUID, which Prefect would take for another route."""
    try:
        return f"/flow_runs/{UUID(run)}"
    except ValueError:
        return None


def _of_run(run: RunId) -> dict[str, Any]:
    return {"flow_runs": {"id": {"any_": [run]}}}


def _unavailable(why: str) -> FlowsUnavailable:
    return FlowsUnavailable(f"the flow-run server is not available: {why}; try again soon", retry_after_s=COME_BACK_S)
