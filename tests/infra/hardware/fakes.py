"""An NVML and a /sys that behave like the real ones, errors included."""

from dataclasses import dataclass, field
from pathlib import Path

import pynvml

from infra.hardware.detect import Machine
from infra.hardware.host import HostMemory
from infra.hardware.nvidia import Handle

GIB = 1 << 30
HOST = HostMemory(total_bytes=32 * GIB, free_bytes=20 * GIB)


@dataclass
class FakeMemory:
    total: int
    free: int


@dataclass
class FakeSlice:
    """A MIG slice."""

    uuid: str
    total_bytes: int
    free_bytes: int


@dataclass
class FakeGpu:
    """A card. `failure` is the NVML code that answers every question to it. No memory: it shares the host's."""

    uuid: str = "GPU-11111111-2222-3333-4444-555555555555"
    name: str = "NVIDIA H200"
    memory: FakeMemory | None = field(default_factory=lambda: FakeMemory(80 * GIB, 70 * GIB))
    temperature_c: int | None = 40
    mig: bool | None = None
    slices: tuple[FakeSlice | None, ...] = ()
    failure: int | None = None


class FakeNvml:
    """`pynvml` for the given cards: the same names, and `NVMLError` with the driver's codes where it would refuse."""

    NVMLError: type[Exception] = pynvml.NVMLError

    def __init__(self, *gpus: FakeGpu, init_failure: int | None = None) -> None:
        self.gpus = list(gpus)
        self.init_failure = init_failure
        self._initialised = False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_failure is not None:
            raise pynvml.NVMLError(self.init_failure)
        self._initialised = True

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        self._require_init()
        return "570.86.15"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        self._require_init()
        return 12080

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._require_init()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802
        self._require_init()
        if not 0 <= index < len(self.gpus):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._answering(self.gpus[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle:  # noqa: N802
        self._require_init()
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return self._answering(gpu)
            for piece in gpu.slices:
                if piece is not None and piece.uuid == uuid:
                    return piece
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetName(self, handle: Handle) -> str:  # noqa: N802
        if isinstance(handle, FakeSlice):
            return f"{self._gpu(handle).name} MIG 1g.18gb"
        return self._gpu(handle).name

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:  # noqa: N802
        return handle.uuid if isinstance(handle, FakeSlice) else self._gpu(handle).uuid

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> FakeMemory:  # noqa: N802
        if isinstance(handle, FakeSlice):
            return FakeMemory(handle.total_bytes, handle.free_bytes)
        memory = self._gpu(handle).memory
        if memory is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return memory

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:  # noqa: N802
        if isinstance(handle, FakeSlice) or sensor != pynvml.NVML_TEMPERATURE_GPU:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        temperature_c = self._gpu(handle).temperature_c
        if temperature_c is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return temperature_c

    def nvmlDeviceGetMigMode(self, handle: Handle) -> list[int]:  # noqa: N802
        mig = self._gpu(handle).mig
        if mig is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(mig), int(mig)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int:  # noqa: N802
        return len(self._gpu(handle).slices)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle:  # noqa: N802
        piece = self._gpu(handle).slices[index]
        if piece is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return piece

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Handle) -> Handle:  # noqa: N802
        if not isinstance(handle, FakeSlice):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._gpu(handle)

    def _require_init(self) -> None:
        if not self._initialised:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)

    def _gpu(self, handle: Handle) -> FakeGpu:
        self._require_init()
        for gpu in self.gpus:
            if handle is gpu or any(handle is piece for piece in gpu.slices):
                return self._answering(gpu)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def _answering(self, gpu: FakeGpu) -> FakeGpu:
        if gpu.failure is not None:
            raise pynvml.NVMLError(gpu.failure)
        return gpu


def no_nvml() -> FakeNvml:
    """A machine without NVIDIA's driver."""
    return FakeNvml(init_failure=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


class FakeSys:
    """A /sys under a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, number: int, vendor: str, **files: str) -> Path:
        """A graphics device; `__` in a file's name is a folder."""
        folder = self.root / "class" / "drm" / f"card{number}" / "device"
        files = {"vendor": vendor, "device": "0x744c", **files}
        for name, text in files.items():
            path = folder.joinpath(*name.split("__"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return folder

    def add_connector(self, name: str) -> None:
        """What a monitor hangs on: no card."""
        (self.root / "class" / "drm" / name / "device").mkdir(parents=True)
        (self.root / "class" / "drm" / name / "device" / "vendor").write_text("0x1002\n")

    def add_amd(self, number: int, serial: str = "0x8c1d3b5a9e7f0246", total_bytes: int = 24 * GIB) -> Path:
        """An AMD card with its figures, on a kernel with the compute driver."""
        kfd = self.root / "class" / "kfd" / "kfd"
        kfd.mkdir(parents=True, exist_ok=True)
        return self.add(
            number,
            "0x1002",
            unique_id=serial.removeprefix("0x"),
            product_name="Radeon RX 7900 XTX",
            mem_info_vram_total=str(total_bytes),
            mem_info_vram_used=str(2 * GIB),
            hwmon__hwmon3__temp1_input="61500",
        )


def machine(sys: FakeSys, nvml: FakeNvml | None = None, summary: str | None = None) -> Machine:
    """A machine with this /sys, these NVIDIA cards and this answer of vulkaninfo."""
    return Machine(nvml=lambda: nvml or no_nvml(), sys_root=sys.root, vulkan=lambda: summary, memory=lambda: HOST)
