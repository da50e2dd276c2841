"""`/healthz` for probes and `/metrics` for Prometheus."""

from pathlib import Path

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.asgi import headers_by_name
from api.cold import ServicesDep
from api.services import Services
from infra.metrics import Metrics
from infra.recorder_status import STALE_S, RecorderStatus, read_status

router = APIRouter(tags=["health"])


@router.head("/healthz", summary="Health, by its status alone")
@router.get("/healthz", summary="Health, without a key")
async def healthz(services: ServicesDep) -> dict[str, bool | str]:
    """200 as soon as requests are answered."""
    return {"ok": True, "version": services.version, "draining": services.fleet.draining}


@router.get("/metrics", summary="Metrics in Prometheus' text format", response_class=Response)
async def metrics(request: Request, services: ServicesDep) -> Response:
    """Counters since start and gauges of now. Open to any key, or to all with `server.metrics_public`."""
    if not services.settings.server.metrics_public:
        services.auth.require(headers_by_name(request.scope["headers"]), "user")
    _observe(services)
    return Response(services.metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _observe(services: Services) -> None:
    """Bring the gauges up to date; they are only worth something when somebody looks."""
    metrics, fleet = services.metrics, services.fleet
    metrics.active.set(services.accounting.active)
    for gauge in (metrics.engine_up, metrics.engine_inflight, metrics.engine_models):
        gauge.clear()
    backends: dict[str, str] = {pool.pool: pool.backend for pool in fleet.pools()}
    for engine in fleet.engines():
        labels = (engine.id, backends.get(engine.pool, "service"), str(not engine.local).lower())
        metrics.engine_up.labels(*labels).set(engine.told_state == "ready")
        metrics.engine_inflight.labels(*labels).set(engine.in_flight)
        metrics.engine_models.labels(*labels).set(engine.told_state == "ready")
    for pool in fleet.pools():
        card = (pool.pool, pool.backend, "false")
        metrics.vram_free.labels(*card).set(pool.free_bytes)
        metrics.vram_total.labels(*card).set(pool.total_bytes)
    if services.spool is not None:
        metrics.spool_bytes.set(services.spool.used_bytes)
        metrics.spool_dropped.labels("detail").set(services.spool.dropped_details)
        metrics.spool_dropped.labels("run").set(services.spool.dropped_runs)
    if services.settings.flows.server == "child":
        _observe_recorder(metrics, services.settings.home)


def _observe_recorder(metrics: Metrics, home: Path) -> None:
    """What the recorder said last; `silent` in place of a state that it has not confirmed for too long."""
    said = read_status(home)
    status = said or RecorderStatus(state="off")
    metrics.recorder_state.clear()
    silent = said is None or said.silent_s() > STALE_S
    metrics.recorder_state.labels("silent" if silent else status.state).set(1)
    metrics.recorder_recorded.set(status.recorded)
    metrics.recorder_set_aside.set(status.set_aside)
    metrics.recorder_segments.set(status.waiting_segments)
    metrics.recorder_waiting.set(status.oldest_waiting_s)
