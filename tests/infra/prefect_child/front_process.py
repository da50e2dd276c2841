"""A front's spool in a process of its own, to be killed: `python -m … HOME LIFE`. It says which runs are kept."""

import sys
from pathlib import Path

from infra.records import Boot
from infra.spool import Spool
from tests.infra.prefect_child.spooled import make_run

RUNS_A_LIFE = 1_000_000


def main(home: Path, life: int) -> None:
    spool = Spool(home / "spool", max_bytes=64 << 20, segment_bytes=20_000)
    spool.begin(Boot(f"boot-{life}", 1.0))
    for number in range(life * RUNS_A_LIFE, (life + 1) * RUNS_A_LIFE):
        spool.append(make_run(number, "failed", {"text": "x" * (number % 3000)}))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        if number % 7 == 0:
            spool.roll()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
