"""What a request leaves behind: counts, a line, and usage that survives a database that does not answer."""

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.accounting import Account, Accounting, JobStep
from infra.database import Database, open_database
from infra.log import AccessLog
from infra.metrics import Metrics
from infra.migrate import migrate
from infra.records import Attempt, RunRecord, StepRecord
from infra.settings import LogSettings
from infra.types import KeyName, ModelName, RunId
from infra.usage import Usage, list_usage


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = open_database(f"sqlite:///{tmp_path / 'coderai.db'}")
    migrate(made)
    yield made
    made.close()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def accounting(metrics: Metrics, database: Database, pipe: tuple[int, int]) -> Accounting:
    return Accounting(metrics, AccessLog(LogSettings(format="json"), pipe[1]), database)


def account(status: int = 200, *, tokens: tuple[int, int] = (3, 2), tries: int = 1, **fields: str) -> Account:
    attempts = [Attempt(None, None, 0, "", [], 0.0) for _ in range(tries)]
    record = RunRecord(
        RunId("r"),
        "chat",
        ModelName("m"),
        KeyName("ann"),
        0.0,
        [StepRecord("generate", "generate", (), "completed", attempts), StepRecord("never", "rank", ())],
        queue_wait_s=0.3,
        first_token_s=0.2,
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
    )
    return Account("r", "chat", 10.0, "ann", "m", "cpu/m", status, record, fields.get("error"))


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample without labels of its own, as `name{values}`."""
    return {
        f"{sample.name}{{{','.join(f'{key}={value}' for key, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def stored(database: Database) -> tuple[Usage, ...]:
    today = datetime.now(UTC).date()
    return list_usage(database, first_day=today, last_day=today)


async def test_a_request_is_counted_everywhere(
    accounting: Accounting, metrics: Metrics, database: Database, pipe: tuple[int, int]
) -> None:
    accounting.open()
    assert accounting.active == 1
    accounting.close(account(tries=2), 10.5)
    assert accounting.active == 0
    counted = samples(metrics)
    labels = "{engine=cpu/m,key=ann,kind=chat,model=m,status=200}"
    assert counted[f"coderai_requests_total{labels}"] == 1
    assert counted[f"coderai_request_seconds_sum{labels}"] == 0.5
    assert counted["coderai_queue_wait_seconds_sum{model=m}"] == 0.3
    assert counted["coderai_time_to_first_token_seconds_count{model=m}"] == 1
    assert counted["coderai_tokens_total{direction=prompt,key=ann,model=m}"] == 3
    assert counted["coderai_tokens_total{direction=completion,key=ann,model=m}"] == 2
    assert counted["coderai_step_retries_total{model=m}"] == 1
    await accounting.flush()
    (row,) = stored(database)
    assert (row.key_name, row.model, row.kind) == ("ann", "m", "chat")
    assert (row.requests, row.errors, row.prompt_tokens, row.completion_tokens, row.seconds) == (1, 0, 3, 2, 0.5)
    accounting._access.flush()
    assert json.loads(os.read(pipe[0], 65536))["status"] == 200


async def test_a_request_that_got_no_run_uses_nothing(
    accounting: Accounting, metrics: Metrics, database: Database
) -> None:
    accounting.open()
    accounting.close(Account("r", "chat", 10.0, status=401, error="invalid_api_key"), 10.1)
    assert samples(metrics)["coderai_requests_total{engine=,key=anonymous,kind=chat,model=unknown,status=401}"] == 1
    await accounting.flush()
    assert stored(database) == ()


async def test_a_client_that_left_has_a_status_of_its_own(accounting: Accounting, metrics: Metrics) -> None:
    accounting.open()
    accounting.close(account(status=0), 11)
    assert samples(metrics)["coderai_requests_total{engine=cpu/m,key=ann,kind=chat,model=m,status=499}"] == 1


async def test_errors_are_failed_answers_and_broken_streams(accounting: Accounting, database: Database) -> None:
    for one in (account(), account(503), account(400), account(200, error="failed")):
        accounting.open()
        accounting.close(one, 11)
    await accounting.flush()
    (row,) = stored(database)
    assert (row.requests, row.errors, row.seconds) == (4, 3, 4.0)


async def test_batches_add_up_and_nothing_is_written_twice(accounting: Accounting, database: Database) -> None:
    for _ in range(3):
        for _ in range(5):
            accounting.open()
            accounting.close(account(), 11)
        await accounting.flush()
    await accounting.flush()
    (row,) = stored(database)
    assert (row.requests, row.prompt_tokens) == (15, 45)


async def test_a_job_is_a_request_and_its_steps_are_what_it_used(
    accounting: Accounting, metrics: Metrics, database: Database
) -> None:
    accounting.count_job("ann", "m", "chat")
    for again in (False, True):
        accounting.count_step(JobStep("ann", "m", "chat", 0.25, 2.0, again, 3, 2))
    accounting.count_step(JobStep("ann", "m", "chat", 0.0, 0.5, again=False))
    counted = samples(metrics)
    assert counted["coderai_tokens_total{direction=prompt,key=ann,model=m}"] == 6
    assert counted["coderai_tokens_total{direction=completion,key=ann,model=m}"] == 4
    assert counted["coderai_step_retries_total{model=m}"] == 1
    assert counted["coderai_queue_wait_seconds_sum{model=m}"] == 0.5
    assert not any(name.startswith("coderai_requests_total") for name in counted)
    assert accounting.active == 0
    await accounting.flush()
    (row,) = stored(database)
    assert (row.requests, row.errors, row.prompt_tokens, row.completion_tokens, row.seconds) == (1, 0, 6, 4, 4.5)


async def test_pages_and_seconds_of_sound_are_units(
    accounting: Accounting, metrics: Metrics, database: Database
) -> None:
    read = account()
    assert read.record is not None
    read.kind, read.record.units = "ocr", 12
    accounting.open()
    accounting.close(read, 11)
    accounting.count_step(JobStep("ann", "m", "ocr", 0.0, 2.0, again=False, units=0.5))
    await accounting.flush()
    (row,) = stored(database)
    assert (row.kind, row.units) == ("ocr", 12.5)
    assert samples(metrics)["coderai_units_total{key=ann,kind=ocr,model=m}"] == 12.5


async def test_what_the_database_does_not_take_is_kept(
    accounting: Accounting, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE usage RENAME TO hidden")
    for _ in range(2):
        accounting.open()
        accounting.close(account(), 11)
        writing = asyncio.create_task(accounting.flush())
        await asyncio.sleep(0)
        accounting.open()
        accounting.close(account(), 11)  # while the database is being asked
        await writing
    assert "usage is kept for later" in caplog.text
    with database.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE hidden RENAME TO usage")
    accounting.open()
    accounting.close(account(), 11)
    await accounting.flush()
    (row,) = stored(database)
    assert (row.requests, row.prompt_tokens, row.seconds) == (5, 15, 5.0)
