"""Cards as Linux shows them under /sys/class/drm: AMD's with all figures, others by vendor only."""

import re
from dataclasses import dataclass
from pathlib import Path

from infra.hardware.cards import Card, CardReading
from infra.types import PoolId

AMD, INTEL, NVIDIA = "0x1002", "0x8086", "0x10de"
_CARD = re.compile(r"card(\d+)")


@dataclass(frozen=True, slots=True)
class DrmDevice:
    """One graphics device: its folder, the PCI vendor and device, as `0x1002`."""

    folder: Path
    vendor: str
    device: str


def drm_devices(sys_root: Path) -> tuple[DrmDevice, ...]:
    """Every graphics device with a PCI vendor, in the kernel's order."""
    found: list[tuple[int, DrmDevice]] = []
    for entry in _listed(sys_root / "class" / "drm"):
        numbered = _CARD.fullmatch(entry.name)
        vendor = _text(entry / "device" / "vendor")
        if numbered and vendor:
            device = DrmDevice(entry / "device", vendor.lower(), (_text(entry / "device" / "device") or "").lower())
            found.append((int(numbered[1]), device))
    return tuple(device for _, device in sorted(found, key=lambda pair: pair[0]))


def rocm_cards(sys_root: Path) -> tuple[Card, ...]:
    """AMD cards that ROCm can drive: those with memory figures, on a kernel with AMD's compute driver (kfd)."""
    if not (sys_root / "class" / "kfd" / "kfd").exists():
        return ()
    amd = [device for device in drm_devices(sys_root) if device.vendor == AMD]
    cards = (_rocm_card(index, device) for index, device in enumerate(amd))
    return tuple(card for card in cards if card is not None)


def read_rocm(sys_root: Path, card: Card) -> CardReading:
    """Free memory and temperature of an AMD card; one that has gone gives a reading that says so."""
    amd = [device for device in drm_devices(sys_root) if device.vendor == AMD]
    for index, device in enumerate(amd):
        if card.uuid == _uuid(index, device):
            total, used = (_number(device.folder / f"mem_info_vram_{kind}") for kind in ("total", "used"))
            if total is None or used is None:
                return CardReading(None, _temperature(device), f"{card.name} tells no memory figures any more")
            return CardReading(max(0, total - used), _temperature(device))
    return CardReading(None, None, f"{card.name} has gone from {sys_root / 'class' / 'drm'}")


def memory_window_bytes(device: DrmDevice) -> int:
    """The largest part of a card's memory that the bus shows: all of it where the BAR can be resized, else 256 MiB."""
    sizes = [0]
    for line in (_text(device.folder / "resource") or "").splitlines():
        numbers = line.split()
        if len(numbers) == 3 and all(re.fullmatch(r"0x[0-9a-f]{1,16}", number) for number in numbers):
            start, end = int(numbers[0], 16), int(numbers[1], 16)
            sizes.append(end - start + 1 if end > start else 0)
    return max(sizes)


def _rocm_card(index: int, device: DrmDevice) -> Card | None:
    total = _number(device.folder / "mem_info_vram_total")
    if not total:
        return None
    uuid = _uuid(index, device)
    return Card(
        id=PoolId(f"rocm-{uuid.removeprefix('GPU-')}"),
        backend="rocm",
        name=_text(device.folder / "product_name") or f"AMD {device.device}",
        uuid=uuid,
        total_bytes=total,
        env={"ROCR_VISIBLE_DEVICES": uuid},
    )


def _uuid(index: int, device: DrmDevice) -> str:
    """ROCm's name of a card, `GPU-` and 16 hex digits; its number where the hardware has no serial."""
    serial = (_text(device.folder / "unique_id") or "").lower().removeprefix("0x")
    return f"GPU-{serial.zfill(16)}" if re.fullmatch(r"[0-9a-f]{1,16}", serial) and int(serial, 16) else str(index)


def _temperature(device: DrmDevice) -> int | None:
    for sensor in _listed(device.folder / "hwmon"):
        millidegrees = _number(sensor / "temp1_input")
        if millidegrees is not None:
            return round(millidegrees / 1000)
    return None


def _listed(folder: Path) -> list[Path]:
    """What is in a folder; nothing where it is not there."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str | None:
    """A small file of the kernel; None where it is not there or a driver refuses to answer."""
    try:
        return path.read_text("ascii", "replace").strip() or None
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text and re.fullmatch(r"-?\d{1,20}", text) else None
