"""Where runs are found while memory and Prefect know different things of them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from api.run_lookup import Wanted, find, list_runs, sees
from infra.errors import NotFound
from infra.records import RunRecord
from infra.tokens import Key, Scope
from infra.types import KeyName, ModelName, RunId
from tests.api.beside_prefect import Flows, beside_prefect
from tests.api.conftest import StartFront

ADMIN = Key(KeyName("root"), "admin")
USER = Key(KeyName("user"), "user")
MINE = Wanted(USER.name)


@pytest.fixture
async def flows(start_front: StartFront) -> AsyncIterator[Flows]:
    async with beside_prefect(start_front) as both:
        yield both


def ended(flows: Flows, ago_s: float, status: str = "completed", key: str = "user") -> RunRecord:
    """A run of this front that has ended."""
    began = datetime.now(UTC).timestamp() - ago_s
    record = RunRecord(RunId(str(uuid4())), "chat", ModelName("tiny"), KeyName(key), began, [], ended_at=began + 1)
    record.status = status  # type: ignore[assignment]  # a parameter of a test
    flows.front.services.active.leave(flows.front.services.active.enter(record))
    return record


@pytest.mark.parametrize(
    ("name", "scope", "owner", "may"),
    [
        ("ann", "user", "ann", True),
        ("ann", "user", "bob", False),
        ("ann", "node", "bob", False),
        ("ann", "user", None, False),
        ("ann", "admin", "bob", True),
        ("ann", "admin", None, True),
    ],
)
def test_who_sees_what(name: str, scope: Scope, owner: str | None, may: bool) -> None:
    assert sees(Key(KeyName(name), scope), owner) is may


async def test_both_are_merged_by_age(flows: Flows) -> None:
    old, new = flows.prefect.add_run(ago_s=30)["id"], flows.prefect.add_run(ago_s=10)["id"]
    between, latest = ended(flows, 20).id, ended(flows, 5).id
    ended(flows, 1, key="other")
    page = await list_runs(flows.front.services, USER, MINE, 10)
    assert [run.id for run in page.runs] == [latest, new, between, old]
    first = await list_runs(flows.front.services, USER, MINE, 2)
    assert ([run.id for run in first.runs], first.has_more) == ([latest, new], True)
    second = await list_runs(flows.front.services, USER, Wanted(USER.name, after=new), 2)
    assert ([run.id for run in second.runs], second.has_more) == ([between, old], False)


async def test_what_prefect_has_is_not_listed_twice(flows: Flows) -> None:
    record = ended(flows, 20)
    began = datetime.fromtimestamp(record.started_at, UTC).isoformat()
    flows.prefect.add_run(id=record.id, start_time=began)
    for limit in (1, 5):
        page = await list_runs(flows.front.services, USER, MINE, limit)
        assert [run.id for run in page.runs] == [record.id]
        assert not page.has_more


async def test_prefect_is_believed_of_a_run_that_was_changed_there(flows: Flows) -> None:
    """It failed here; then it was run again, elsewhere."""
    record = ended(flows, 20, "failed")
    row = flows.prefect.add_run(id=record.id, run_count=2)
    assert (await find(flows.front.services, USER, record.id)).view.status == "completed"
    assert (await list_runs(flows.front.services, USER, Wanted(USER.name, "failed"), 5)).runs == []
    row["run_count"] = 1
    found = await find(flows.front.services, USER, record.id)
    assert (found.record, found.flow_run is not None) == (record, True)


async def test_a_run_of_nobody_is_an_admin_s(flows: Flows) -> None:
    row = flows.prefect.add_run(tags=[])
    assert (await find(flows.front.services, ADMIN, row["id"])).view.key is None
    with pytest.raises(NotFound, match=f"no run '{row['id']}'"):
        await find(flows.front.services, USER, row["id"])


async def test_a_flow_that_is_not_ours_has_the_run_s_name(flows: Flows) -> None:
    row = flows.prefect.add_run(flow_id=str(uuid4()), name="by-hand")
    assert (await find(flows.front.services, ADMIN, row["id"])).view.flow == "by-hand"
