"""How the Prefect child is started, and what a Prefect client of this install must know. Imports no Prefect."""

import base64
import hashlib
import sys
from pathlib import Path
from typing import Literal

from infra.settings import Settings
from infra.supervisor.types import ChildSpec
from infra.types import Frozen

OPTIONS_VARIABLE = "CODERAI_PREFECT_OPTIONS"
"""Where the child finds its `ChildOptions`, as JSON."""
UI_BASE = "/flows"
API_BASE = "/flows/api"
_DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
_STOP_GRACE_S = 8.0
_QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_COLORS": "false",
}
"""For every process with Prefect in it: it tells nobody anything, and says no more than it must."""
_LOOPS_S = {
    # A retry or a cancellation is an event and waits for none of these; they find what nobody announced.
    "SERVICES_LATE_RUNS_LOOP_SECONDS": 30,
    "SERVICES_SCHEDULER_LOOP_SECONDS": 60,
    "SERVICES_SCHEDULER_RECENT_DEPLOYMENTS_LOOP_SECONDS": 30,
    "SERVICES_PAUSE_EXPIRATIONS_LOOP_SECONDS": 60,
    "SERVICES_CLEANUP_RECONCILER_LOOP_SECONDS": 60,
    "SERVICES_CANCELLATION_CLEANUP_LOOP_SECONDS": 60,
    "SERVICES_REPOSSESSOR_LOOP_SECONDS": 30,
    "SERVICES_FOREMAN_LOOP_SECONDS": 15,
}
"""Seconds between the looks of Prefect's own services (`PREFECT_SERVER_<NAME>`); its defaults look every 5 s."""
_BATCHES = {
    # By default each event is a transaction of its own, some 50 ms of CPU; the flush intervals bound the delay.
    "SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "2",
    "SERVICES_TRIGGERS_READ_BATCH_SIZE": "20",
}


class ChildOptions(Frozen):
    """What our own part of the child needs to know; a child gets no other CODERAI_ variable than its home."""

    home: Path
    keep_days: float
    keep_runs: int
    payloads: Literal["all", "failed", "none"]


def prefect_auth(internal_token: str) -> str:
    """The user and password that Prefect demands of everybody: derived, so that a restarted front knows it, too."""
    return f"coderai:{hashlib.sha256(f'prefect:{internal_token}'.encode()).hexdigest()}"


def basic(auth: str) -> str:
    """The Authorization header's value for `user:password`."""
    return f"Basic {base64.b64encode(auth.encode()).decode()}"


def prefect_spec(settings: Settings, internal_token: str) -> ChildSpec:
    """The child that serves Prefect on loopback, with its state under `<home>/prefect`."""
    flows = settings.flows
    options = ChildOptions(
        home=settings.home, keep_days=flows.keep_days, keep_runs=flows.keep_runs, payloads=settings.payloads
    )
    env = {**_server_environment(settings), OPTIONS_VARIABLE: options.model_dump_json()}
    secrets = {"PREFECT_SERVER_API_AUTH_STRING": prefect_auth(internal_token)}
    if flows.database_url is None:
        env[_DATABASE] = f"sqlite+aiosqlite:///{settings.at('prefect', 'flows.db')}"
    else:
        secrets[_DATABASE] = flows.database_url.get_secret_value()
    return ChildSpec(
        name="prefect",
        argv=(sys.executable, "-m", "infra.prefect_child", "{port}"),
        env=env,
        secret_env=secrets,
        keep_port=True,
        stop_grace_s=_STOP_GRACE_S,
        pulse=True,
    )


def client_environment(url: str, auth: str, settings: Settings) -> dict[str, str]:
    """The environment of a process that talks to the child at `url` as a Prefect client. It holds a secret."""
    return {
        **_QUIET,
        "PREFECT_HOME": str(settings.at("prefect")),
        "PREFECT_API_URL": f"{url}{API_BASE}",
        "PREFECT_API_AUTH_STRING": auth,
        "PREFECT_WORKER_QUERY_SECONDS": "15",
        "PREFECT_WORKER_HEARTBEAT_SECONDS": "10",
        "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "1",
    }


def _server_environment(settings: Settings) -> dict[str, str]:
    state = settings.at("prefect")
    server = {
        "API_HOST": "127.0.0.1",
        "API_PORT": "{port}",
        "API_BASE_PATH": API_BASE,
        "UI_SERVE_BASE": UI_BASE,
        "UI_API_URL": API_BASE,
        "UI_STATIC_DIRECTORY": str(state / "ui"),
        "UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "CORS_ALLOWED_ORIGINS": "http://none.invalid",  # Prefect's default is everybody
        "LOGGING_LEVEL": "WARNING",
        "SERVICES_DB_VACUUM_ENABLED": "events",  # finished runs are pruned by number as well as by age, by us
        "EVENTS_RETENTION_PERIOD": f"PT{round(max(settings.flows.keep_days, 1.0) * 86_400)}S",
        "EVENTS_PROACTIVE_GRANULARITY": "PT15S",
        **{name: str(seconds) for name, seconds in _LOOPS_S.items()},
        **_BATCHES,
    }
    return {**_QUIET, "PREFECT_HOME": str(state), **{f"PREFECT_SERVER_{name}": value for name, value in server.items()}}
