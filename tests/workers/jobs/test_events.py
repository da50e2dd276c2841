import asyncio
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from prefect.events import Event, RelatedResource, Resource
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.ports import free_port
from workers.jobs.events import Subscription, _filter, hear

RUN, POOL = uuid4(), uuid4()


class Heard:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.pools: list[UUID] = []
        self.runs: list[tuple[UUID, float]] = []
        self.suspensions: list[UUID] = []
        self.ends: list[tuple[UUID, float]] = []
        self.changed = 0

    def waiting(self, pool: UUID) -> None:
        self.pools.append(pool)

    def cancelling(self, run: UUID, occurred_at: float) -> None:
        self.runs.append((run, occurred_at))

    def cancelled(self, run: UUID, occurred_at: float) -> None:
        self.ends.append((run, occurred_at))

    def suspended(self, run: UUID) -> None:
        self.suspensions.append(run)

    def changes(self) -> None:
        self.changed += 1


def event(kind: str, resource: str, *related: str) -> Event:
    return Event(
        event=kind,
        occurred=datetime.fromtimestamp(1000, UTC),
        resource=Resource({"prefect.resource.id": resource}),
        related=[
            RelatedResource({"prefect.resource.id": each, "prefect.resource.role": each.split(".")[1]})
            for each in related
        ],
    )


@pytest.mark.parametrize("kind", ["AwaitingRetry", "Scheduled", "Late"])
def test_a_run_that_waits_nudges_the_worker_of_its_pool(kind: str) -> None:
    heard = Heard()
    hear(
        event(
            f"prefect.flow-run.{kind}",
            f"prefect.flow-run.{RUN}",
            f"prefect.deployment.{uuid4()}",
            f"prefect.work-pool.{POOL}",
        ),
        heard,
    )
    assert (heard.pools, heard.runs) == ([POOL], [])


def test_a_run_that_is_to_end_is_told_with_the_time_of_the_wish() -> None:
    heard = Heard()
    hear(event("prefect.flow-run.Cancelling", f"prefect.flow-run.{RUN}", f"prefect.work-pool.{POOL}"), heard)
    assert (heard.pools, heard.runs) == ([], [(RUN, 1000.0)])


def test_one_that_was_suspended_is_cancelled_without_being_asked() -> None:
    heard, name = Heard(), "prefect.flow-run.Cancelled"
    hear(event(name, f"prefect.flow-run.{RUN}", f"prefect.work-pool.{POOL}"), heard)
    assert (heard.pools, heard.runs, heard.ends) == ([], [], [(RUN, 1000.0)])
    listened_to = _filter().event
    assert listened_to is not None
    assert name in (listened_to.name or [])


def test_a_run_that_is_suspended_is_told() -> None:
    heard = Heard()
    hear(event("prefect.flow-run.Suspended", f"prefect.flow-run.{RUN}", f"prefect.work-pool.{POOL}"), heard)
    assert (heard.pools, heard.runs, heard.suspensions) == ([], [], [RUN])


@pytest.mark.parametrize("change", ["created", "updated", "deleted", "ready"])
def test_a_changed_pool_is_looked_at(change: str) -> None:
    heard = Heard()
    hear(event(f"prefect.work-pool.{change}", f"prefect.work-pool.{POOL}"), heard)
    assert (heard.changed, heard.pools, heard.runs) == (1, [], [])


def test_a_deployment_that_is_gone_is_looked_after() -> None:
    heard = Heard()
    hear(event("prefect.deployment.deleted", f"prefect.deployment.{uuid4()}"), heard)
    assert heard.changed == 1


@pytest.mark.parametrize("resource", ["prefect.flow.x", "prefect.flow-run.none", "prefect.flow-run."])
def test_other_events_mean_nothing(resource: str) -> None:
    heard = Heard()
    hear(event("prefect.flow-run.Cancelling", resource, "prefect.work-pool.none"), heard)
    hear(event("prefect.flow-run.Scheduled", f"prefect.flow-run.{RUN}", "prefect.work-pool.none"), heard)
    assert (heard.pools, heard.runs) == ([], [])


async def test_it_goes_on_where_nobody_answers(caplog: pytest.LogCaptureFixture) -> None:
    """And says so once, not at every try."""

    async def connected() -> None:
        raise AssertionError("there is nobody")

    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/flows/api"}):
        keeping = asyncio.create_task(Subscription(Heard(), connected).keep())
        await asyncio.sleep(1.2)
        assert not keeping.done()
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
    assert sum("cannot be heard" in record.message for record in caplog.records) == 1
