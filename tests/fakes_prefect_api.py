"""A fake of Prefect's REST API, as much of it as `infra.prefect_api` uses, on a real socket.

Strict: it refuses what it does not know. What it claims is compared with the real server by
`tests/infra/test_prefect_contract.py`.
"""

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from aiohttp import web

from infra.prefect_address import PrefectAddress
from tests.loopback import serve

AUTHORIZATION = "Basic Y29kZXJhaTpodXNo"
FLOWS = ("chat", "completions", "responses", "embeddings", "rerank", "transcription", "batch")
_TERMINAL = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
_ORDERS = ("START_TIME_DESC",)
_API = "/flows/api"
Row = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refused(Exception):
    """What Prefect answers 422 to."""


class FakePrefect:
    """The server, with its tables to be written and read by a test.

    `locked`: how many of the next requests find the database locked. `frozen` lets no request end. `seen` has each
    request's method and path.
    """

    def __init__(self) -> None:
        self.runs: dict[str, Row] = {}
        self.tasks: list[Row] = []
        self.logs: list[Row] = []
        self.artifacts: list[Row] = []
        self.pools: dict[str, Row] = {}
        self.flows = {name: str(uuid4()) for name in FLOWS}
        self.deployments = {name: str(uuid4()) for name in FLOWS}
        self.locked = 0
        self.broken: bytes | None = None
        self.frozen: Callable[[], Awaitable[object]] | None = None
        self.seen: list[tuple[str, str]] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> PrefectAddress:
        """Where it is."""
        return PrefectAddress(AUTHORIZATION, self.url)

    async def __aenter__(self) -> "FakePrefect":
        app = web.Application(middlewares=[self._door])
        app.router.add_routes(
            [
                web.post(f"{_API}/flow_runs/filter", self._list_runs),
                web.post(f"{_API}/flow_runs/count", self._count_runs),
                web.get(f"{_API}/flow_runs/{{id}}", self._show_run),
                web.post(f"{_API}/flow_runs/{{id}}/set_state", self._set_state),
                web.post(f"{_API}/task_runs/filter", self._of_runs("tasks")),
                web.post(f"{_API}/artifacts/filter", self._of_runs("artifacts")),
                web.post(f"{_API}/logs/filter", self._list_logs),
                web.get(f"{_API}/flows/{{id}}", self._show_flow),
                web.get(f"{_API}/deployments/name/{{flow}}/{{name}}", self._show_deployment),
                web.post(f"{_API}/deployments/{{id}}/create_flow_run", self._create_run),
                web.post(f"{_API}/work_pools/filter", self._list_pools),
                web.patch(f"{_API}/work_pools/{{name}}", self._change_pool),
            ]
        )
        self._runner, self.url = await serve(app)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def add_run(self, flow: str = "chat", state: str = "COMPLETED", *, key: str = "user", **fields: Any) -> Row:
        """A run as the recorder writes one: it began a minute ago, or `started` seconds before now."""
        started = datetime.now(UTC) - timedelta(seconds=fields.pop("ago_s", 60.0))
        over, began = state in _TERMINAL, state not in ("SCHEDULED", "PENDING")
        row = self._row(flow, [f"key:{key}", f"model:{fields.pop('model', 'tiny')}", "lane:interactive"], {}, None)
        row |= {
            "created": _iso(started),
            "expected_start_time": _iso(started),
            "start_time": _iso(started) if began else None,
            "end_time": _iso(started + timedelta(seconds=1.5)) if over else None,
            "total_run_time": 1.5 if over else 0.0,
            "run_count": int(began),
            "state": _state({"type": state, "message": fields.pop("message", None)}),
        }
        row |= fields
        self.runs[row["id"]] = row
        return row

    def add_task(self, run: Row, name: str, *parents: Row, state: str = "COMPLETED") -> Row:
        """A task run of that run."""
        row = {
            "id": str(uuid4()),
            "name": name,
            "task_key": name,
            "tags": [],
            "state": _state({"type": state}),
            "run_count": 1,
            "start_time": run["start_time"],
            "end_time": run["end_time"],
            "total_run_time": 0.5,
            "task_inputs": {"parents": [{"input_type": "task_run", "id": parent["id"]} for parent in parents]},
            "flow_run_id": run["id"],
        }
        self.tasks.append(row)
        return row

    def add_pool(self, name: str, device: str | None = None, **fields: Any) -> Row:
        """A work pool."""
        properties = {} if device is None else {"device": {"type": "string", "default": device}}
        self.pools[name] = {
            "name": name,
            "type": "coderai-card",
            "is_paused": False,
            "concurrency_limit": None,
            "active_slots": None,
            "status": "READY",
            "base_job_template": {"variables": {"properties": properties}, "job_configuration": {}},
        } | fields
        return self.pools[name]

    @web.middleware
    async def _door(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.seen.append((request.method, request.path.removeprefix(_API)))
        if request.headers.get("Authorization") != AUTHORIZATION:
            return web.json_response({"exception_message": "Unauthorized"}, status=401)
        if self.frozen is not None:
            await self.frozen()
        if self.broken is not None:
            return web.Response(body=self.broken, content_type="application/json")
        if self.locked:
            self.locked -= 1
            return web.json_response({"exception_message": "Service Unavailable"}, status=503)
        try:
            return await handler(request)
        except Refused as error:
            return web.json_response({"exception_message": "Invalid request received.", "why": str(error)}, status=422)

    async def _list_runs(self, request: web.Request) -> web.Response:
        body = await _body(request, "flow_runs", "sort", "limit", "offset")
        if body["sort"] not in _ORDERS:
            raise Refused("sort")
        found = sorted(self._matching(body["flow_runs"]), key=_began, reverse=True)
        return _page(found, body)

    async def _count_runs(self, request: web.Request) -> web.Response:
        body = await _body(request, "flow_runs")
        return web.json_response(len(list(self._matching(body["flow_runs"]))))

    def _matching(self, wanted: Row) -> Iterator[Row]:
        _only(wanted, "id", "tags", "state", "start_time")
        ids, tags = _inner(wanted, "id", "any_"), _inner(wanted, "tags", "all_") or []
        states = _inner(wanted.get("state", {}), "type", "any_")
        before = _inner(wanted, "start_time", "before_")
        for run in self.runs.values():
            fits = (
                (ids is None or run["id"] in ids)
                and set(tags) <= set(run["tags"])
                and (states is None or run["state"]["type"] in states)
                and (before is None or datetime.fromisoformat(_began(run)) <= datetime.fromisoformat(before))
            )
            if fits:
                yield run

    async def _show_run(self, request: web.Request) -> web.Response:
        return _found(self.runs.get(_uuid(request)))

    async def _set_state(self, request: web.Request) -> web.Response:
        body = await _body(request, "state", "force")
        _only(body["state"], "type", "name", "message")
        run = self.runs.get(_uuid(request))
        if run is None:
            return _found(None)
        again = run["state"]["type"] == body["state"]["type"] == "CANCELLED"
        if run["state"]["type"] in _TERMINAL and not body["force"] and not again:
            details = {"type": "abort_details", "reason": "This run has already terminated."}
            return web.json_response({"state": None, "status": "ABORT", "details": details})
        waits = run["state"]["type"] == "SCHEDULED" and body["state"]["type"] == "CANCELLING" and not body["force"]
        run["state"] = _state({"type": "CANCELLED", "name": "Cancelled"} if waits else body["state"])
        if run["state"]["type"] in _TERMINAL:
            run["end_time"] = run["state"]["timestamp"]
            run["start_time"] = run["start_time"] or run["end_time"]
        answer = {"state": run["state"], "status": "ACCEPT", "details": {"type": "accept_details"}}
        if waits:
            details = {"type": "reject_details", "reason": "Scheduled flow run has no infrastructure to terminate."}
            answer |= {"status": "REJECT", "details": details}
        return web.json_response(answer, status=201)

    async def _show_flow(self, request: web.Request) -> web.Response:
        wanted = _uuid(request)
        named = [{"id": flow, "name": name} for name, flow in self.flows.items() if flow == wanted]
        return _found(named[0] if named else None)

    async def _show_deployment(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        known = name == request.match_info["flow"] and name in self.deployments
        return _found({"id": self.deployments[name], "name": name} if known else None)

    async def _create_run(self, request: web.Request) -> web.Response:
        body = await _body(request, "name", "parameters", "tags", "idempotency_key")
        flow = next((name for name, it in self.deployments.items() if it == _uuid(request)), None)
        if flow is None:
            return _found(None)
        if set(body["parameters"]) != {"request"} or not isinstance(body["parameters"]["request"], dict):
            return web.json_response({"detail": "Error creating flow run: Validation failed"}, status=409)
        key = body["idempotency_key"]
        for run in self.runs.values():
            if run["flow_id"] == self.flows[flow] and run["idempotency_key"] == key:
                return web.json_response(run)
        row = self._row(flow, body["tags"], body["parameters"], key) | {"name": body["name"]}
        self.runs[row["id"]] = row
        return web.json_response(row, status=201)

    def _row(self, flow: str, tags: list[str], parameters: Row, idempotency_key: str | None) -> Row:
        now = _iso(datetime.now(UTC))
        run = str(uuid4())
        return {
            "id": run,
            "name": f"{flow}-{run[:8]}",
            "flow_id": self.flows[flow],
            "deployment_id": self.deployments[flow],
            "parameters": parameters,
            "tags": tags,
            "idempotency_key": idempotency_key,
            "state": _state({"type": "SCHEDULED"}),
            "run_count": 0,
            "created": now,
            "expected_start_time": now,
            "start_time": None,
            "end_time": None,
            "total_run_time": 0.0,
            "estimated_run_time": 0.0,
            "infrastructure_pid": None,
            "work_pool_name": "head",
        }

    def _of_runs(self, table: str) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            body = await _body(request, "flow_runs", "limit", *(["sort"] if table == "tasks" else []))
            _only(body["flow_runs"], "id")
            runs = body["flow_runs"]["id"]["any_"]
            return _page([row for row in getattr(self, table) if row["flow_run_id"] in runs], body)

        return answer

    async def _list_logs(self, request: web.Request) -> web.Response:
        body = await _body(request, "logs", "sort", "limit")
        runs = body["logs"]["flow_run_id"]["any_"]
        return _page(sorted((row for row in self.logs if row["flow_run_id"] in runs), key=_timestamp), body)

    async def _list_pools(self, request: web.Request) -> web.Response:
        return _page(list(self.pools.values()), await _body(request, "limit", "offset"))

    async def _change_pool(self, request: web.Request) -> web.Response:
        body = await request.json()
        _only(body, "is_paused", "concurrency_limit")
        pool = self.pools.get(request.match_info["name"])
        if pool is None:
            return _found(None)
        pool.update(body)
        return web.Response(status=204)


def _found(row: Row | None) -> web.Response:
    return web.json_response({"detail": "not found"}, status=404) if row is None else web.json_response(row)


async def _body(request: web.Request, *names: str) -> Row:
    body: Row = await request.json()
    _only(body, *names)
    return body


def _only(body: Row, *names: str) -> None:
    unknown = set(body) - set(names)
    if unknown:
        raise Refused(f"extra fields: {unknown}")


def _page(rows: list[Row], body: Row) -> web.Response:
    if body["limit"] > 200:
        raise Refused("Invalid limit: must be less than or equal to 200.")
    offset = body.get("offset", 0)
    return web.json_response(rows[offset : offset + body["limit"]])


def _inner(wanted: Row, name: str, operator: str) -> Any:
    inner = wanted.get(name)
    if inner is None:
        return None
    _only(inner, operator)
    return inner[operator]


def _uuid(request: web.Request) -> str:
    return str(UUID(request.match_info["id"]))


def _state(wish: Row) -> Row:
    return {
        "id": str(uuid4()),
        "type": wish["type"],
        "name": wish.get("name") or wish["type"].capitalize(),
        "message": wish.get("message"),
        "timestamp": _iso(datetime.now(UTC)),
    }


def _began(run: Row) -> str:
    return str(run["start_time"] or run["expected_start_time"])


def _timestamp(row: Row) -> str:
    return str(row["timestamp"])


def _iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
