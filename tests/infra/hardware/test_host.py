"""RAM, and less where a container limits it."""

from pathlib import Path

import psutil

from infra.hardware.host import cpu_card, host_memory, read_cpu

MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_limits_it_is_the_machine(tmp_path: Path) -> None:
    memory = host_memory(tmp_path)
    assert memory.total_bytes == psutil.virtual_memory().total
    assert 0 < memory.free_bytes <= memory.total_bytes


def test_the_tightest_group_above_us_counts(tmp_path: Path) -> None:
    root = write(tmp_path, {
        "proc/self/cgroup": "0::/user/app\n",
        "sys/fs/cgroup/user/app/memory.max": "max\n",
        "sys/fs/cgroup/user/app/memory.current": f"{5 * MIB}\n",
        "sys/fs/cgroup/user/memory.max": f"{100 * MIB}\n",
        "sys/fs/cgroup/user/memory.current": f"{70 * MIB}\n",
        "sys/fs/cgroup/user/memory.stat": f"anon 1\ninactive_file {30 * MIB}\n",
        "sys/fs/cgroup/memory.max": f"{200 * MIB}\n",
    })  # fmt: skip
    memory = host_memory(root)
    assert memory.total_bytes == 100 * MIB
    assert memory.free_bytes == 60 * MIB  # what only caches files counts as free
    card = cpu_card(memory)
    assert (card.id, card.backend, card.total_bytes, card.env) == ("cpu", "cpu", 100 * MIB, {})
    assert read_cpu(memory).free_bytes == 60 * MIB


def test_version_1_groups_count_too(tmp_path: Path) -> None:
    root = write(tmp_path, {
        "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/box\n0::/\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{64 * MIB}\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{80 * MIB}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    })  # fmt: skip
    memory = host_memory(root)
    assert (memory.total_bytes, memory.free_bytes) == (64 * MIB, 0)


def test_nonsense_is_no_limit(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "x\n0::/../..\n", "sys/fs/cgroup/memory.max": "lots\n"})
    assert host_memory(root).total_bytes == psutil.virtual_memory().total
