"""The machine's memory as this process may use it: RAM, or less where a container limits it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.hardware.cards import Card, CardReading
from infra.types import PoolId

UNLIMITED_BYTES = 1 << 60
"""Control groups write a huge number, or `max`, for no limit."""
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of RAM: all that this process may have, and what is left of it."""

    total_bytes: int
    free_bytes: int


def host_memory(root: Path = Path("/")) -> HostMemory:
    """RAM, cut by every control group above this process (version 2, and version 1 where it still runs)."""
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    for limit, used in _limits(root):
        total, free = min(total, limit), min(free, max(0, limit - used))
    return HostMemory(total, free)


def cpu_card(memory: HostMemory) -> Card:
    """The processor as a card; every machine has it."""
    return Card(PoolId("cpu"), "cpu", "CPU", None, memory.total_bytes, {})


def read_cpu(memory: HostMemory) -> CardReading:
    """Free memory. A processor slows down by itself when hot: its temperature closes nothing."""
    return CardReading(memory.free_bytes, None)


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of each group that has a limit."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "")
        if controllers == "":
            yield from _group_limits(root / "sys/fs/cgroup", group, _VERSION_2)
        elif "memory" in controllers.split(","):
            yield from _group_limits(root / "sys/fs/cgroup/memory", group, _VERSION_1)


def _group_limits(base: Path, group: str, names: tuple[str, str, str]) -> Iterator[tuple[int, int]]:
    """The group and all above it, up to `base`. What only caches files is given back on demand: it is not used."""
    limit, used, cache = names
    parts = [part for part in group.split("/") if part not in ("", ".", "..")]
    for depth in range(len(parts), -1, -1):
        folder = base.joinpath(*parts[:depth])
        allowed = _number(_read(folder / limit))
        if allowed is not None and allowed < UNLIMITED_BYTES:
            cached = re.search(rf"^{cache} (\d{{1,18}})$", _read(folder / "memory.stat"), re.MULTILINE)
            in_use = (_number(_read(folder / used)) or 0) - (int(cached[1]) if cached else 0)
            yield allowed, max(0, in_use)


def _read(path: Path) -> str:
    """A small file of the kernel; empty where it is not there."""
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,20}\s*", text) else None
