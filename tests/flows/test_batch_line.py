"""Batches in a real worker process: one run and no task runs, killed and gone on with, cancelled."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from infra.batch_rows import Batch, Batches, NewBatch
from infra.database import open_database
from infra.file_rows import Files, NewFile
from infra.file_store import FILES, FileStore
from infra.migrate import migrate
from infra.run_usage import RunUsage, labelled_usage
from infra.settings import load_settings
from infra.types import FileId, KeyName
from tests.job_lane import CHAT, JobLane, until

pytestmark = pytest.mark.slow

ANN = KeyName("ann")
URL = "/v1/chat/completions"


@dataclass
class BatchLane:
    """The lane, and the rows as a front would write them."""

    lane: JobLane
    batches: Batches

    def begin(self, count: int, **body: Any) -> tuple[Batch, str]:
        """A batch of chats and its run."""
        lines = [{"custom_id": f"c{n}", "method": "POST", "url": URL, "body": CHAT | body} for n in range(count)]
        incoming = self.batches.files.begin(ANN, 1 << 20)
        incoming.write(b"\n".join(orjson.dumps(line) for line in lines))
        file = self.batches.files.add(incoming, NewFile(ANN, "in.jsonl", "batch"))
        batch = self.batches.create(NewBatch(key=ANN, flow="chat", endpoint=URL, input_file=file.id), ANN)
        return batch, self.lane.submit("batch", {"batch": batch.id}, (f"key:{ANN}",))

    def now(self, batch: Batch) -> Batch:
        """How it is."""
        return self.batches.get(batch.id, ANN)

    def lines(self, file: FileId | None) -> list[dict[str, Any]]:
        """What a file of results has."""
        assert file is not None
        with self.batches.files.open(self.batches.files.get(file, ANN)) as source:
            return [orjson.loads(line) for line in source]


@pytest.fixture
def batch_lane(quiet_lane: JobLane) -> Iterator[BatchLane]:
    settings = load_settings(home=quiet_lane.home)
    database = open_database(settings.sqlalchemy_url)
    migrate(database)
    yield BatchLane(quiet_lane, Batches(Files(database, FileStore(settings.at(FILES)), settings.files)))
    database.close()


def test_a_batch_is_one_run_without_task_runs(batch_lane: BatchLane) -> None:
    lane = batch_lane.lane
    batch, run = batch_lane.begin(20, stream=True)
    done = lane.wait(run)
    assert done["state_type"] == "COMPLETED", done["state"]
    ended = batch_lane.now(batch)
    assert (ended.status, ended.total, ended.completed, ended.failed) == ("completed", 20, 20, 0)
    results = batch_lane.lines(ended.output_file)
    assert sorted(line["custom_id"] for line in results) == sorted(f"c{n}" for n in range(20))
    assert results[0]["response"]["body"]["choices"][0]["message"]["content"] == "hello"
    assert len(lane.engine.asked) == 20
    assert "stream" not in lane.engine.bodies[0]
    assert {plan.key for plan in lane.front.plans} == {ANN}
    assert {lease.run for lease in lane.front.leases} == {run}
    assert lane.about(run, "task_runs") == []
    (bar,) = [artifact for artifact in lane.about(run, "artifacts") if artifact["type"] == "progress"]
    assert bar["data"] == 100.0
    assert labelled_usage(done["labels"]) == RunUsage(20 * 5, 20 * 2)
    assert "20 of 20" in bar["description"]


def test_one_that_is_suspended_completes_all_the_same(batch_lane: BatchLane) -> None:
    """It has no step to be suspended before."""
    lane = batch_lane.lane
    lane.wait(lane.submit("chat", CHAT))
    lane.engine.held = True
    batch, run = batch_lane.begin(1)
    lane.suspend(run)
    lane.engine.held = False
    until(lambda: lane.run(run)["state_type"] == "COMPLETED", 20, lambda: lane.log)
    assert batch_lane.now(batch).status == "completed"


def test_requests_that_fail_are_in_the_other_file(batch_lane: BatchLane) -> None:
    batch, run = batch_lane.begin(3, model="nobody")
    assert batch_lane.lane.wait(run)["state_type"] == "COMPLETED"
    ended = batch_lane.now(batch)
    assert (ended.status, ended.completed, ended.failed, ended.output_file) == ("completed", 0, 3, None)
    assert {
        (line["response"]["status_code"], line["response"]["body"]["error"]["code"])
        for line in batch_lane.lines(ended.error_file)
    } == {(404, "model_not_found")}


def test_a_killed_worker_process_s_batch_goes_on_where_it_was(batch_lane: BatchLane) -> None:
    lane = batch_lane.lane
    lane.engine.slow_s, lane.engine.quick = 60.0, 20
    batch, run = batch_lane.begin(60)
    until(lambda: batch_lane.now(batch).completed >= 8, 30, lambda: lane.log)
    lane.stop(signal.SIGKILL)
    asked = len(lane.engine.asked)
    lane.engine.slow_s = 0.0
    lane.start()
    assert lane.wait(run)["state_type"] == "CRASHED"
    lane.retry(run)
    lane.wait(run, "COMPLETED", timeout_s=60)
    ended = batch_lane.now(batch)
    assert (ended.status, ended.completed) == ("completed", 60)
    assert sorted(line["custom_id"] for line in batch_lane.lines(ended.output_file)) == sorted(
        f"c{n}" for n in range(60)
    )
    assert len(lane.engine.asked) <= 60 + 8, "what was done is not done again, but for what was under way"
    assert asked < 60


def test_a_cancelled_batch_has_what_was_done(batch_lane: BatchLane) -> None:
    lane = batch_lane.lane
    lane.engine.slow_s = 0.5
    batch, run = batch_lane.begin(200)
    until(lambda: batch_lane.now(batch).completed >= 8, 30, lambda: lane.log)
    batch_lane.batches.cancel(batch.id, ANN)
    lane.set_state(run, "CANCELLING", "Cancelling")
    assert lane.wait(run)["state_type"] == "CANCELLED"
    ended = batch_lane.now(batch)
    assert ended.status == "cancelled"
    assert 8 <= ended.completed < 200
    assert len(batch_lane.lines(ended.output_file)) == ended.completed
    until(lambda: lane.front.held == 0, 5)


def test_a_bad_input_fails_the_run_with_its_reason(batch_lane: BatchLane) -> None:
    batch, run = batch_lane.begin(0)
    failed = batch_lane.lane.wait(run)
    assert failed["state_type"] == "FAILED"
    assert "no requests" in failed["state"]["message"]
    assert batch_lane.now(batch).errors[0].code == "empty_file"
