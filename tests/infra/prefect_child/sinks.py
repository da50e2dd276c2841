"""Writers in place of Prefect's database, each as strict as it."""

import asyncio
import sqlite3
from pathlib import Path

import orjson

from infra.prefect_child.batch import Batch, Recorded, RowsRefused
from infra.records import Boot


class MemorySink:
    """Keeps batches in a list. `trouble` is raised for a batch instead, `poison` are runs that no batch may hold."""

    def __init__(self) -> None:
        self.batches: list[list[Boot | Recorded]] = []
        self.calls = 0
        self.trouble: Exception | None = None
        self.poison: dict[str, Exception] = {}

    async def record(self, batch: Batch) -> None:
        self.calls += 1
        assert batch, "an empty batch is an INSERT without rows"
        if self.trouble is not None:
            raise self.trouble
        for entry in batch:
            if isinstance(entry, Recorded):
                assert entry.record.payload is None
                if entry.record.id in self.poison:
                    raise self.poison[entry.record.id]
        self.batches.append(list(batch))

    @property
    def runs(self) -> list[Recorded]:
        return [entry for batch in self.batches for entry in batch if isinstance(entry, Recorded)]

    @property
    def ids(self) -> list[str]:
        return [run.record.id for run in self.runs]

    @property
    def boots(self) -> list[str]:
        return [entry.boot for batch in self.batches for entry in batch if isinstance(entry, Boot)]


class SqliteSink:
    """One table with unique ids. A run that is there already must be the same; `slow_s` passes inside a transaction
    and once more after it."""

    def __init__(self, path: Path, slow_s: float = 0.0) -> None:
        self._slow_s = slow_s
        self._database = sqlite3.connect(path, timeout=30)
        self._database.execute("CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY, row BLOB NOT NULL)")
        self._database.execute("CREATE TABLE IF NOT EXISTS batch (lines INTEGER NOT NULL)")
        self._database.commit()

    async def record(self, batch: Batch) -> None:
        with self._database:
            for entry in batch:
                if isinstance(entry, Recorded):
                    self._insert(entry)
            await asyncio.sleep(self._slow_s)
            self._database.execute("INSERT INTO batch VALUES (?)", (len(batch),))
        await asyncio.sleep(self._slow_s)

    def _insert(self, entry: Recorded) -> None:
        row = orjson.dumps([entry.record, entry.parameter])
        there = self._database.execute("SELECT row FROM run WHERE id = ?", (entry.record.id,)).fetchone()
        if there is None:
            self._database.execute("INSERT INTO run VALUES (?, ?)", (entry.record.id, row))
        elif there[0] != row:
            raise RowsRefused(f"run {entry.record.id} is another one the second time")
