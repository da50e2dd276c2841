"""NVIDIA cards through NVML, the driver's own library; MIG slices are cards of their own."""

import importlib
import logging
from collections.abc import Iterator
from typing import Protocol, cast

from infra.hardware.cards import Card, CardReading
from infra.types import PoolId

log = logging.getLogger("infra.hardware")

TEMPERATURE_OF_GPU = 0
MIG_ON = 1

Handle = object


class Memory(Protocol):
    """What NVML says of a card's memory, in bytes."""

    total: int
    free: int


class NvmlSystem(Protocol):
    """The driver as a whole."""

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlSystemGetDriverVersion(self) -> str: ...  # noqa: N802
    def nvmlSystemGetCudaDriverVersion(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802


class NvmlDevices(Protocol):
    """Cards by number or name."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...  # noqa: N802
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle: ...  # noqa: N802
    def nvmlDeviceGetName(self, handle: Handle) -> str: ...  # noqa: N802
    def nvmlDeviceGetUUID(self, handle: Handle) -> str: ...  # noqa: N802


class NvmlGauges(Protocol):
    """What a card measures."""

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> Memory: ...  # noqa: N802
    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int: ...  # noqa: N802


class NvmlMig(Protocol):
    """Slices of a card."""

    def nvmlDeviceGetMigMode(self, handle: Handle) -> list[int]: ...  # noqa: N802
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int: ...  # noqa: N802
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle: ...  # noqa: N802
    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Handle) -> Handle: ...  # noqa: N802


class Nvml(NvmlSystem, NvmlDevices, NvmlGauges, NvmlMig, Protocol):
    """The functions of `pynvml` that are used here, under its names; each raises `NVMLError`."""

    NVMLError: type[Exception]


def load_nvml() -> Nvml:
    """The real NVML; imported on demand, since most machines have no such card. Nothing is opened yet."""
    return cast(Nvml, importlib.import_module("pynvml"))


def nvidia_cards(nvml: Nvml, host_bytes: int) -> tuple[Card, ...]:
    """Every card and MIG slice; none where the driver is missing. A card that fails to answer is logged and left out.

    `host_bytes` is the size of a card that shares the machine's memory and therefore reports none of its own.
    """
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        log.debug("no NVIDIA cards: %s", error)
        return ()
    cards: list[Card] = []
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            cards += [_card(nvml, device, host_bytes) for device in _devices(nvml, handle)]
        except nvml.NVMLError as error:
            log.warning("NVIDIA card %d does not answer and is left out: %s", index, error)
    return tuple(cards)


def read_nvidia(nvml: Nvml, card: Card, host: CardReading) -> CardReading:
    """Free memory and temperature of a card; a card that fails or has gone gives a reading that says so."""
    if card.uuid is None:
        return CardReading(None, None)
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(card.uuid)
    except nvml.NVMLError as error:
        return CardReading(None, None, f"{card.name} does not answer: {error}")
    memory = _memory(nvml, handle)
    return CardReading(memory.free if memory else host.free_bytes, _temperature(nvml, handle, card.uuid))


def _devices(nvml: Nvml, handle: Handle) -> Iterator[Handle]:
    """The card itself, or its slices where MIG is on: a process cannot use the whole of such a card."""
    try:
        sliced = nvml.nvmlDeviceGetMigMode(handle)[0] == MIG_ON
    except nvml.NVMLError:  # most cards know no MIG at all
        sliced = False
    if not sliced:
        yield handle
        return
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:  # this place for a slice is empty
            continue
        yield device


def _card(nvml: Nvml, handle: Handle, host_bytes: int) -> Card:
    uuid = nvml.nvmlDeviceGetUUID(handle)
    memory = _memory(nvml, handle)
    return Card(
        id=PoolId(f"cuda-{uuid.removeprefix('GPU-')}"),
        backend="cuda",
        name=nvml.nvmlDeviceGetName(handle),
        uuid=uuid,
        total_bytes=memory.total if memory else host_bytes,
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuid},
    )


def _memory(nvml: Nvml, handle: Handle) -> Memory | None:
    """None where the card has no memory of its own."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        log.debug("no memory figures: %s", error)
        return None


def _temperature(nvml: Nvml, handle: Handle, uuid: str) -> int | None:
    """In degrees; a slice has its card's. None where there is no sensor."""
    try:
        whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if uuid.startswith("MIG-") else handle
        return nvml.nvmlDeviceGetTemperature(whole, TEMPERATURE_OF_GPU)
    except nvml.NVMLError as error:
        log.debug("no temperature: %s", error)
        return None
