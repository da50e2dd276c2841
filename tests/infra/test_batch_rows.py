"""Rows of batches: whose they are, the ways from one status to another, and what they keep."""

from pathlib import Path

import pytest

from infra.batch_rows import Batch, Batches, BatchProblem, NewBatch, Status
from infra.batch_usage import BatchUsage, Spent
from infra.database import Database
from infra.errors import Conflict, InvalidRequest, NotFound
from infra.file_rows import Files, NewFile, StoredFile, Wanted
from infra.types import BatchId, KeyName, RunId
from tests.infra.test_file_rows import ME, YOU, Clock, clock, content, database, files

__all__ = ["clock", "database", "files"]


def sent(files: Files, data: bytes = b"{}\n", purpose: str = "batch", key: KeyName = ME) -> StoredFile:
    incoming = files.begin(key, 1 << 20)
    incoming.write(data)
    return files.add(incoming, NewFile(key, "in.jsonl", purpose))


def begun(files: Files, key: KeyName = ME) -> Batch:
    file = sent(files, key=key)
    return Batches(files).create(
        NewBatch(key=key, flow="chat", endpoint="/v1/chat/completions", input_file=file.id, labels={"a": "b"}), key
    )


def test_a_new_batch(files: Files) -> None:
    batches, batch = Batches(files), begun(files)
    assert (batch.status, batch.total, batch.labels, batch.run) == ("validating", 0, {"a": "b"}, None)
    assert (batch.expires_at - batch.created_at).total_seconds() == 86_400
    assert batches.started(batch.id, RunId("0" * 36)).run == "0" * 36
    assert batches.get(batch.id, ME).id == batch.id == batches.get(batch.id, None).id
    with pytest.raises(NotFound):
        batches.get(batch.id, YOU)
    with pytest.raises(NotFound):
        batches.get(BatchId("batch_x"), None)
    assert [one.id for one in batches.under_way()] == [batch.id]


def test_its_input_must_be_a_file_of_the_key_for_batches(files: Files) -> None:
    batches = Batches(files)
    for file, key in ((sent(files, purpose="vision"), ME), (sent(files), YOU)):
        with pytest.raises(InvalidRequest) as caught:
            batches.create(NewBatch(key=key, flow="chat", endpoint="/e", input_file=file.id), key)
        assert caught.value.param == "input_file_id"


def test_its_input_is_kept_until_it_is_over(files: Files) -> None:
    batches, batch = Batches(files), begun(files)
    files.delete(batch.input_file, ME)
    assert len(content(files)) == 1
    batches.move(batch.id, "failed", [BatchProblem(code="x", message="y", line=3)])
    assert content(files) == []
    assert batches.get(batch.id, ME).errors == [BatchProblem(code="x", message="y", line=3)]


def test_one_that_could_not_be_begun_is_forgotten(files: Files) -> None:
    batches, batch = Batches(files), begun(files)
    batches.forget(batch.id)
    with pytest.raises(NotFound):
        batches.get(batch.id, None)
    assert batches.page(None, None, 10) == ([], False)


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        (["in_progress", "finalizing", "completed"], "completed"),
        (["in_progress", "cancelling", "in_progress", "finalizing"], "cancelling"),
        (["cancelling", "cancelled", "in_progress"], "cancelled"),
        (["failed", "completed"], "failed"),
    ],
)
def test_the_ways_between_statuses(files: Files, steps: list[Status], end: Status) -> None:
    batches, batch = Batches(files), begun(files)
    for status in steps:
        batches.move(batch.id, status)
    ended = batches.get(batch.id, ME)
    assert ended.status == end
    assert f"{end}_at" in ended.moments


def test_the_end_keeps_files_where_there_are_lines(files: Files, tmp_path: Path, clock: Clock) -> None:
    batches, batch = Batches(files), begun(files)
    output, error = tmp_path / "o", tmp_path / "e"
    output.write_bytes(b"{}\n")
    batches.count(batch.id, 3, 1, 0)
    spent = Spent("m", BatchUsage(input_tokens=3, total_tokens=3))
    ended = batches.finish(batch.id, "completed", {"output": output, "error": error}, spent)
    assert (ended.model, ended.usage) == ("m", spent.usage)
    assert (ended.status, ended.total, ended.completed, ended.error_file) == ("completed", 3, 1, None)
    assert ended.output_file is not None
    file = files.get(ended.output_file, ME)
    assert (file.filename, file.purpose) == (f"{batch.id}_output.jsonl", "batch_output")
    assert batches.finish(batch.id, "completed", {"output": output}) == ended
    assert len(files.page(Wanted(ME, purpose="batch_output"))[0]) == 1


def test_who_comes_late_with_a_count_changes_nothing(files: Files) -> None:
    batches, batch = Batches(files), begun(files)
    batches.count(batch.id, 5, 3, 1)
    batches.count(batch.id, 5, 2, 0)
    found = batches.get(batch.id, ME)
    assert (found.total, found.completed, found.failed) == (5, 3, 1)
    batches.finish(batch.id, "completed", {})
    batches.count(batch.id, 5, 4, 1)
    assert batches.get(batch.id, ME).completed == 3


def test_cancelling(files: Files) -> None:
    batches, batch = Batches(files), begun(files)
    with pytest.raises(NotFound):
        batches.cancel(batch.id, YOU)
    assert batches.cancel(batch.id, ME).status == "cancelling"
    assert batches.finish(batch.id, "cancelled", {}).status == "cancelled"
    with pytest.raises(Conflict):
        batches.cancel(batch.id, ME)
    assert batches.under_way() == []


def test_pages(files: Files, clock: Clock, database: Database) -> None:
    ids = []
    for _ in range(3):
        clock.now_s += 1
        ids.append(begun(files).id)
    page, more = Batches(files).page(ME, None, 2)
    assert ([one.id for one in page], more) == (ids[:0:-1], True)
    page, more = Batches(files).page(ME, page[-1].id, 2)
    assert ([one.id for one in page], more) == (ids[:1], False)
    assert Batches(files).page(YOU, None, 2) == ([], False)
