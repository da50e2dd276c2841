"""Tests of the check at the start: into tables that are not Prefect's 3.9 nothing is written, and all is kept."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from infra.prefect_child.batch import NotReady
from infra.prefect_child.contract import broken
from infra.records import Boot
from tests.infra.prefect_child.prefect_database import interface
from tests.infra.prefect_child.records import one_step
from tests.ports import free_port
from tests.prefect_server import running_server

pytestmark = pytest.mark.slow


async def test_a_database_that_is_away_is_no_other_version(tmp_path: Path) -> None:
    db = interface(tmp_path / "missing" / "flows.db")
    async with httpx.AsyncClient(base_url="http://127.0.0.1:1") as api:
        with pytest.raises(NotReady, match="unable to open"):
            await broken(db, api)
    await (await db.engine()).dispose()


def _alter(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
        connection.commit()


def test_other_tables_keep_the_runs_in_the_spool(tmp_path: Path) -> None:
    run = one_step()
    with running_server(tmp_path / "home", free_port()) as server:
        server.register(flows=("chat",))
        server.stop()
        _alter(server.home / "prefect" / "flows.db", "ALTER TABLE artifact RENAME COLUMN data TO other")
        segment = server.home / "spool" / f"{time.time_ns()}.seg"
        segment.parent.mkdir(exist_ok=True)
        segment.write_bytes(Boot("b", run.started_at - 1).line() + run.line())
        server.start()
        said = server.status
        assert said is not None
        assert (said.state, said.waiting_segments) == ("mismatch", 1)
        assert "data" in said.reason
        status, answer = server.call("POST", "/coderai/record", {"lines": [json.loads(run.line())]})
        assert (status, answer["detail"]) == (503, said.reason)
        assert server.post("/flow_runs/count", {}) == 0
        assert segment.exists()
