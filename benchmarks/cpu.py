"""What a process and its children have used, from the kernel's own books.

CPU is utime + stime of the process with all its threads, those that ended included: the numbers of `/proc/<pid>/stat`,
read where the kernel offers it through the process's CPU clock, which counts nanoseconds where the file counts
hundredths of a second. Children are found by walking the process tree.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_QUIET_CPU_SHARE = 0.05
"""Below this share of one core an install counts as idle."""


def cpu_us(pid: int) -> float:
    """CPU microseconds that a process has used with its threads.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2) * 1e6
    except OSError:
        return cpu_us_from_stat(pid)


def cpu_us_from_stat(pid: int) -> float:
    """The same from `/proc/<pid>/stat`, in steps of a hundredth of a second.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S * 1e6


@dataclass(frozen=True)
class Used:
    """CPU microseconds of the front process, and of the install's other processes together."""

    front_us: float
    others_us: float

    def __sub__(self, earlier: "Used") -> "Used":
        return Used(self.front_us - earlier.front_us, self.others_us - earlier.others_us)


@dataclass(frozen=True)
class Memory:
    """Resident and proportional size of the front, and proportional size of the whole install, in MiB."""

    front_rss_mib: float
    front_pss_mib: float
    install_pss_mib: float


def tree(root_pid: int) -> list[int]:
    """The process and everything below it."""
    root = psutil.Process(root_pid)
    return [root_pid, *(child.pid for child in root.children(recursive=True))]


def used(root_pid: int, front_pid: int) -> Used:
    """What an install has used so far. A child that ended in between is missing from the second number."""
    others = 0.0
    for pid in tree(root_pid):
        if pid != front_pid:
            try:
                others += cpu_us(pid)
            except ProcessLookupError:
                continue
    return Used(cpu_us(front_pid), others)


def memory(root_pid: int, front_pid: int) -> Memory:
    """What an install holds in memory now."""
    mib = 1024 * 1024
    whole = 0
    for pid in tree(root_pid):
        try:
            whole += psutil.Process(pid).memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    front = psutil.Process(front_pid).memory_full_info()
    return Memory(front.rss / mib, front.pss / mib, whole / mib)


def drain(root_pid: int, front_pid: int, at_most_s: float = 30.0) -> bool:
    """Wait until an install is idle, so that one case's backlog is not charged to the next; False if it never was."""
    give_up = time.monotonic() + at_most_s
    while time.monotonic() < give_up:
        before, started = used(root_pid, front_pid), time.monotonic()
        time.sleep(0.25)
        spent = used(root_pid, front_pid) - before
        if spent.front_us + spent.others_us < _QUIET_CPU_SHARE * (time.monotonic() - started) * 1e6:
            return True
    return False
