"""What a front left behind when it ended: runs that nobody executes any more become Crashed."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface
from sqlalchemy.ext.asyncio import AsyncSession

from infra.prefect_child.rows import CRASH_MESSAGE, FRONT_PID, Row, flow_state
from infra.records import Boot

_UNFINISHED = ("RUNNING", "CANCELLING", "PENDING")
"""PENDING: a retry whose worker died with that front, before it had written its own mark."""


async def crash_left_behind(db: PrefectDBInterface, session: AsyncSession, boot: Boot) -> list[tuple[Row, Row]]:
    """End the runs of earlier fronts, as of the moment when `boot` began; returns each run with its new state.

    A run that began later is left alone, so that an old line which comes again does no harm.
    """
    table: Any = db.FlowRun.__table__
    states_table: Any = db.FlowRunState.__table__
    began, now = datetime.fromtimestamp(boot.started_at, UTC), datetime.now(UTC)
    left = (
        sa.update(table)
        .where(
            table.c.state_type.in_(_UNFINISHED),
            table.c.infrastructure_pid.startswith(FRONT_PID, autoescape=True),
            table.c.infrastructure_pid != f"{FRONT_PID}{boot.boot}",
            table.c.run_count <= 1,
            table.c.start_time < began,
        )
        .values(state_type="CRASHED", state_name="Crashed", state_timestamp=began, end_time=began, updated=now)
        .returning(table)
    )
    runs = [dict(row) for row in (await session.execute(left)).mappings()]
    states = [flow_state(run["id"], "crashed", began, CRASH_MESSAGE, now) for run in runs]
    if runs:
        await session.execute(db.queries.insert(states_table).on_conflict_do_nothing(), states)
    for run, state in zip(runs, states, strict=True):
        took = began - run["start_time"]
        ended = sa.update(table).where(table.c.id == run["id"]).values(state_id=state["id"], total_run_time=took)
        await session.execute(ended)
    return list(zip(runs, states, strict=True))
