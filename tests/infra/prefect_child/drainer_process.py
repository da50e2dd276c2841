"""A drainer in a process of its own, to be killed: `python -m … HOME SLOW_S`. Its rows go to `HOME/sink.db`."""

import asyncio
import sys
from pathlib import Path

from infra.blobs import Blobs
from infra.prefect_child.drain import Drainer
from infra.prefect_child.payloads import PayloadKeeper
from infra.recorder_status import StatusFile
from infra.run_files import RunFiles
from tests.infra.prefect_child.sinks import SqliteSink


def main(home: Path, slow_s: float) -> None:
    keeper = PayloadKeeper("all", Blobs(home / "payloads"), RunFiles(home))
    sink = SqliteSink(home / "sink.db", slow_s)
    asyncio.run(Drainer(home / "spool", sink.record, keeper, StatusFile(home)).run_forever())


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
