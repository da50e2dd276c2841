"""Cards that only Vulkan can drive: by `vulkaninfo` where it is installed, else by vendor."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from infra.hardware.cards import Card
from infra.hardware.sysfs import AMD, INTEL, NVIDIA, DrmDevice, drm_devices, memory_window_bytes
from infra.types import PoolId

VULKANINFO_LIMIT_S = 10.0
SHARED_MEMORY_SHARE = 2
"""A GPU without memory of its own may take one part in this many of the machine's."""
_NAMES = {AMD: "AMD", INTEL: "Intel", NVIDIA: "NVIDIA"}
_DEVICE = re.compile(r"^GPU(\d+):$", re.MULTILINE)
_FIELD = re.compile(r"^\s*(\w+)\s*=\s*(.+?)\s*$", re.MULTILINE)


def vulkan_summary() -> str | None:
    """What `vulkaninfo --summary` prints; None where it is missing, fails or hangs."""
    program = shutil.which("vulkaninfo")
    if program is None:
        return None
    argv = [program, "--summary"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=VULKANINFO_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def vulkan_cards(
    summary: str | None, sys_root: Path, host_bytes: int, driven_vendors: frozenset[str]
) -> tuple[Card, ...]:
    """GPUs of vendors that nothing better drives here. Indexes are those of Vulkan's own list."""
    devices = [device for device in drm_devices(sys_root) if device.vendor in _NAMES]
    if summary is None:
        listed = [(index, device.vendor, "") for index, device in enumerate(devices)]
    else:
        listed = _parse(summary)
    cards = []
    for index, vendor, name in listed:
        if vendor not in driven_vendors:
            total = _memory(vendor, devices, host_bytes)
            title = name or f"{_NAMES.get(vendor, vendor)} GPU"
            env = {"GGML_VK_VISIBLE_DEVICES": str(index)}
            cards.append(Card(PoolId(f"vulkan-{index}"), "vulkan", title, None, total, env))
    return tuple(cards)


def _parse(summary: str) -> list[tuple[int, str, str]]:
    """Index, vendor and name of each real GPU; a software renderer is none."""
    pieces = _DEVICE.split(summary)[1:]
    found = []
    for index, body in zip(pieces[::2], pieces[1::2], strict=True):
        fields = dict(_FIELD.findall(body))
        if "CPU" not in fields.get("deviceType", ""):
            found.append((int(index), fields.get("vendorID", "").lower(), fields.get("deviceName", "")))
    return found


def _memory(vendor: str, devices: Sequence[DrmDevice], host_bytes: int) -> int:
    """A card's own memory as far as the bus shows it; a share of the machine's for one that has none."""
    windows = [memory_window_bytes(device) for device in devices if device.vendor == vendor]
    own = max(windows, default=0)
    return own if own > 1 << 30 else host_bytes // SHARED_MEMORY_SHARE
