"""How the worker process is started. Imports no Prefect: the front asks for it."""

import sys

from infra.prefect_child.spec import client_environment, prefect_auth
from infra.settings import INTERNAL_TOKEN_VARIABLE, Settings
from infra.supervisor.types import ChildSpec

NAME = "worker"
"""The child's name."""
_STOP_GRACE_S = 6.0
_PREFECT = {
    # What a run says of itself is for its page; everything else only where something is wrong.
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "INFO",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "INFO",
    # Nothing is pickled: results are files of our own, and what Prefect itself might write is JSON.
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    # Our own events do it, for running jobs as well.
    "PREFECT_WORKER_ENABLE_CANCELLATION": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
}


def worker_spec(settings: Settings, prefect_url: str, internal_token: str) -> ChildSpec:
    """The process that executes jobs; `prefect_url` is the root of the Prefect child, `http://127.0.0.1:PORT`."""
    client = client_environment(prefect_url, prefect_auth(internal_token), settings)
    secret = "PREFECT_API_AUTH_STRING"
    return ChildSpec(
        name=NAME,
        argv=(sys.executable, "-m", "api.worker"),
        env={
            **{name: value for name, value in client.items() if name != secret},
            **_PREFECT,
            "CODERAI_HOME": str(settings.home),
            "CODERAI_LOG__LEVEL": settings.log.level,
            "CODERAI_LOG__FORMAT": settings.log.format,
            **{f"CODERAI_FILES__{name.upper()}": str(value) for name, value in settings.files.model_dump().items()},
        },
        secret_env={secret: client[secret], INTERNAL_TOKEN_VARIABLE: internal_token} | _database(settings),
        stop_grace_s=_STOP_GRACE_S,
        pulse=True,
    )


def _database(settings: Settings) -> dict[str, str]:
    """Where the database is, if not in the home; the URL may hold a password."""
    return {"CODERAI_DATABASE_URL": settings.database_url} if settings.database_url else {}
