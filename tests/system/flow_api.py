"""Prefect's own API as an operator's scripts reach it: through `/flows/api` of the front, with an admin key."""

from typing import Any

import httpx2
import yaml

from tests.repo.tree import read
from tests.system.product import Product, eventually

SHOWN_WITHIN_S = 30.0
"""The contract: a run is found by its id within that."""
UP_WITHIN_S = 120.0
DEPLOYED = {each["name"] for each in yaml.safe_load(read("prefect.yaml"))["deployments"]}
TERMINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}


class FlowApi:
    """The flow-run server of one install."""

    def __init__(self, product: Product) -> None:
        self._product = product

    def wait_until_up(self) -> None:
        """Until the API answers and the deployments are there: requests are recorded and jobs taken."""
        eventually(self._is_up, UP_WITHIN_S, what=lambda: self._product.log, pause_s=0.5)

    def _is_up(self) -> bool:
        answer = self.post("/deployments/filter", {})
        return answer.status_code == 200 and {one["name"] for one in answer.json()} >= DEPLOYED

    def job(self, path: str, body: object) -> str:
        """Have a request done as a job; its run."""
        headers = self._product.headers() | {"X-Coderai-Lane": "job"}
        answer = httpx2.post(f"{self._product.url}{path}", json=body, headers=headers, timeout=20)
        assert answer.status_code == 202, answer.text
        run: str = answer.json()["id"]
        return run

    def get(self, path: str) -> httpx2.Response:
        """A GET below /flows/api."""
        return httpx2.get(f"{self._product.url}/flows/api{path}", headers=self._product.headers(), timeout=20)

    def post(self, path: str, body: object) -> httpx2.Response:
        """A POST below /flows/api."""
        url = f"{self._product.url}/flows/api{path}"
        return httpx2.post(url, json=body, headers=self._product.headers(), timeout=20)

    def patch(self, path: str, body: object) -> httpx2.Response:
        """A PATCH below /flows/api."""
        url = f"{self._product.url}/flows/api{path}"
        return httpx2.patch(url, json=body, headers=self._product.headers(), timeout=20)

    def run(self, run: str, *, state: str | None = None, within_s: float = SHOWN_WITHIN_S) -> dict[str, Any]:
        """The flow run, once it is there (and in that state)."""
        last: list[str] = []

        def found() -> dict[str, Any] | None:
            answer = self.get(f"/flow_runs/{run}")
            last[:] = [answer.text[:2000]]
            if answer.status_code != 200:
                return None
            read: dict[str, Any] = answer.json()
            return read if state in (None, read["state_type"], read["state_name"]) else None

        shown = eventually(found, within_s, what=lambda: f"{run}: {last}\n{self._product.log[-3000:]}", pause_s=0.1)
        assert shown is not None
        return shown

    def tasks(self, run: str) -> dict[str, dict[str, Any]]:
        """Its task runs by name."""
        answer = self.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {task["name"]: task for task in answer.json()}

    def require_tasks(self, run: str, *names: str) -> None:
        """Fails unless these are its task runs, and no others, soon: Prefect writes them down by events, a little after
        the run's own end."""
        eventually(lambda: set(self.tasks(run)) == set(names), 10, what=lambda: str(sorted(self.tasks(run))))

    def set_state(self, run: str, kind: str, name: str, *, force: bool = True) -> None:
        """What the UI's buttons do."""
        answer = self.post(f"/flow_runs/{run}/set_state", {"state": {"type": kind, "name": name}, "force": force})
        assert answer.json()["status"] == "ACCEPT", answer.text

    def retry(self, run: str) -> None:
        """The Retry button."""
        self.set_state(run, "SCHEDULED", "AwaitingRetry")

    def cancel(self, run: str) -> None:
        """The Cancel button."""
        self.set_state(run, "CANCELLING", "Cancelling", force=False)

    def count(self, **filters: object) -> int:
        """How many flow runs there are."""
        return int(self.post("/flow_runs/count", filters).json())
