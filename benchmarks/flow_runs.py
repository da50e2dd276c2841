"""An install with its flow-run server, as the recording benchmark sees it: counts, states, what is still to be done."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import orjson

from benchmarks import cpu
from benchmarks.exchange import get, post
from benchmarks.ours import Install
from benchmarks.processes import StartFailed
from benchmarks.text import CONFIG, weights
from benchmarks.upstream import MODEL

FRONT, PREFECT, WORKER = "api.front", "infra.prefect_child", "api.worker"
REAL = "chat"
"""SmolLM2, for runs that take their time."""
_JOB = {"X-Coderai-Lane": "job"}


class Recorded:
    """An install in `home`, in front of the fixed-answer upstream and of SmolLM2; it serves inside the `with` block."""

    def __init__(self, home: Path, upstream_port: int) -> None:
        config = CONFIG.format(name=REAL, path=weights(home), slots=4)
        self.install = Install(home, {"MODELS__PACKAGED": "false"}, config)
        url = f"http://127.0.0.1:{upstream_port}"
        far = ("models", "add", MODEL, "--service-url", url, "--served-model", MODEL, "--max-instances", "64")
        self.install.command(*far)
        self.key = self.install.create_key("bench", "admin")
        self._spool = home / "spool"

    def __enter__(self) -> Self:
        self.install.__enter__()
        self.install.wait_until_served(MODEL, self.key)
        self.install.wait_until_served(REAL, self.key)
        self.wait_until_up()
        return self

    def __exit__(self, *error: object) -> None:
        self.install.__exit__(None, None, None)

    def wait_until_up(self) -> float:
        """Seconds until requests are recorded and jobs taken."""
        return wait(self._ready, 180, "deployments at /flows/api")

    def wait_until_drained(self, within_s: float) -> float:
        """Seconds until nothing is left in the spool."""
        return wait(lambda: not any(self._spool.glob("*.[so]*")), within_s, "an empty spool")

    def api(self, path: str, body: object) -> object:
        """The JSON of a POST to the flow-run server, through the front; None while it does not answer."""
        answer = post(self.install.port, f"/flows/api{path}", orjson.dumps(body), self.key)
        return orjson.loads(answer.body) if answer.status in (200, 201) else None

    def runs_of(self, flow: str) -> int:
        """Flow runs of one flow that the server has."""
        found = self.api("/flow_runs/count", {"flows": {"name": {"any_": [flow]}}})
        return found if isinstance(found, int) else 0

    def state(self, run: str) -> tuple[str, int]:
        """A run's state, and how often it was run."""
        answer = get(self.install.port, f"/flows/api/flow_runs/{run}", self.key)
        found = orjson.loads(answer.body) if answer.status == 200 else {}
        return found.get("state_name", ""), found.get("run_count", 0)

    def set_state(self, run: str, kind: str, name: str) -> None:
        """What a button of the UI does."""
        self.api(f"/flow_runs/{run}/set_state", {"state": {"type": kind, "name": name}, "force": True})

    def cpu_us(self, *modules: str) -> float:
        """CPU that these children of the supervisor have used."""
        return sum(cpu.cpu_us(self.install.child_pid(module)) for module in modules)

    def submit_job(self, request: dict[str, object]) -> str:
        """Send a chat down the job lane; its run.

        Raises:
            StartFailed: it was not taken.
        """
        path = "/v1/chat/completions"
        answer = post(self.install.port, path, orjson.dumps(request), self.key, extra=_JOB)
        if answer.status != 202:
            raise StartFailed(f"the job was not taken: {answer.status} {answer.text[:300]}")
        return str(orjson.loads(answer.body)["id"])

    def in_flight(self) -> int:
        """Slots that are taken, of all engines."""
        answer = get(self.install.port, "/admin/api/engines", self.key)
        return sum(engine["in_flight"] for engine in orjson.loads(answer.body)["engines"])

    def _ready(self) -> bool:
        found = self.api("/deployments/filter", {})
        return isinstance(found, list) and len(found) >= 4


def wait(ask: Callable[[], object], within_s: float, what: str, pause_s: float = 0.05) -> float:
    """Seconds until `ask` says something true.

    Raises:
        StartFailed: it does not.
    """
    began = time.monotonic()
    while not ask():
        if time.monotonic() - began > within_s:
            raise StartFailed(f"no {what} within {within_s:.0f} s")
        time.sleep(pause_s)
    return time.monotonic() - began
