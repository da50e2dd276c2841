from types import SimpleNamespace
from uuid import UUID, uuid4

import httpx
import pytest

from infra.run_usage import RunUsage, labelled_usage
from workers.jobs import labels as module
from workers.jobs.labels import keep_usage


class Prefect:
    """Its client; `away` lets nothing through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = False
        self.labels: dict[str, bool | int | float | str] = {}
        monkeypatch.setattr(module, "get_client", lambda: SimpleNamespace(update_flow_run_labels=self._update))

    async def _update(self, _run: UUID, labels: dict[str, bool | int | float | str]) -> None:
        if self.away:
            raise httpx.ConnectError("nobody is there")
        self.labels |= labels


async def test_it_says_whether_it_was_heard(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    prefect, run = Prefect(monkeypatch), uuid4()
    prefect.away = True
    assert not await keep_usage(run, RunUsage(1))
    assert f"what run {run} has used could not be kept: nobody is there" in caplog.text
    prefect.away = False
    assert await keep_usage(run, RunUsage(2))
    assert labelled_usage(prefect.labels) == RunUsage(2)
