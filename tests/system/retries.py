"""A run of several parts of which one fails: its engines are killed under it, as often as it is tried."""

import os
import signal
from contextlib import suppress

from tests.system.engines import engines_of
from tests.system.flow_api import FlowApi
from tests.system.product import Product, eventually


def kept_steps(served: Product, run: str) -> set[str]:
    """The steps of a run whose results are kept for its retry."""
    return {path.stem for path in (served.home / "runs" / run / "steps").glob("*.json")}


def kill_busy(served: Product, model: str, *, only: str = "") -> None:
    """Kill the engines of a model that are at work, or that `only` of one card."""
    busy = [engine["pool"] for engine in engines_of(served, model) if engine["in_flight"]]
    for pool in busy if not only else [only]:
        for pid, line in served.processes().items():
            if f'"name":"{model}"' in line and f'"pool":"{pool}"' in line:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def fail_the_other_parts(served: Product, run: str, model: str) -> set[str]:
    """Once a part has succeeded, kill whatever engine is at work until the run has failed; gives its kept steps."""
    flows = FlowApi(served)

    def failed() -> bool:
        if any(step.startswith("part-") for step in kept_steps(served, run)):
            kill_busy(served, model)
        state = flows.get(f"/flow_runs/{run}").json()["state_type"]
        assert state != "COMPLETED", "no part has failed"
        return bool(state == "FAILED")

    eventually(
        failed,
        90,
        what=lambda: f"{kept_steps(served, run)} {engines_of(served, model)}\n{served.log[-5000:]}",
        pause_s=0.05,
    )
    return kept_steps(served, run)


def retried(served: Product, run: str) -> dict[str, list[str]]:
    """Retry a run, wait for its end; the states of its steps' task runs, those of both tries."""
    flows = FlowApi(served)
    flows.retry(run)
    flows.run(run, state="COMPLETED", within_s=90)

    def states() -> dict[str, list[str]] | None:
        found: dict[str, list[str]] = {}
        for task in flows.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}}).json():
            found.setdefault(task["name"], []).append(task["state_name"])
        last = {"Completed", "Kept"}
        return found if all(last & set(names) for names in found.values()) else None

    found = eventually(states, 15, what=lambda: served.log[-3000:])
    assert found is not None
    return found
