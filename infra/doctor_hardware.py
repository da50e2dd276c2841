"""Checks of the machine: processor, memory, cards and their drivers."""

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from infra.doctor import Check
from infra.hardware.cards import Card, CardReading
from infra.hardware.host import HostMemory
from infra.hardware.nvidia import Nvml
from infra.hardware.sysfs import AMD, NVIDIA, drm_devices

LITTLE_MEMORY_BYTES: Final = 2 << 30
TOO_LITTLE_MEMORY_BYTES: Final = 700 << 20
WHEEL_INSTRUCTIONS: Final = ("avx2", "fma", "f16c", "bmi2")
"""What the prebuilt llama.cpp was compiled for, under Linux's names."""
_DRIVER_DIFFERS: Final = 18
"""NVML's code for a library and a kernel module of two versions."""
_OWN_BUILD: Final = "set llama.server_bin to a build that has it, or run `coderai engines build llama`"


def check_processor(architecture: str, cpuinfo: str, own_build: bool) -> Check:
    """The processor has what the bundled llama.cpp needs. `own_build`: llama.server_bin replaces it."""
    if architecture not in ("x86_64", "AMD64"):
        return Check("processor", "ok", architecture)
    named = re.search(r"^flags\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    flags = set(named[1].split()) if named else set()
    if not flags:
        return Check("processor", "ok", f"{architecture}; the system does not tell its instructions")
    missing = ", ".join(flag for flag in WHEEL_INSTRUCTIONS if flag not in flags)
    if not missing:
        return Check("processor", "ok", f"{architecture} with {', '.join(WHEEL_INSTRUCTIONS)}")
    if own_build:
        return Check("processor", "ok", f"{architecture} without {missing}; llama.server_bin is your own build")
    mend = "the bundled llama.cpp cannot run here: run `coderai engines build llama`"
    return Check("processor", "problem", f"{architecture} without {missing}", mend)


def check_memory(memory: HostMemory) -> Check:
    """Enough memory is free for a model."""
    found = f"{memory.free_bytes / 2**30:.1f} of {memory.total_bytes / 2**30:.1f} GiB free"
    if memory.free_bytes < TOO_LITTLE_MEMORY_BYTES:
        return Check("memory", "problem", found, "end something, or raise the container's limit: no model fits")
    if memory.free_bytes < LITTLE_MEMORY_BYTES:
        return Check("memory", "warning", found, "only small models fit")
    return Check("memory", "ok", found)


def check_card(card: Card, reading: CardReading, own_build: bool) -> Check:
    """One card answers, and the llama.cpp in use can drive it. `own_build`: llama.server_bin is set."""
    name = f"card {card.id}"
    found = f"{card.name}, {card.total_bytes / 2**30:.1f} GiB"
    if reading.temperature_c is not None:
        found += f", {reading.temperature_c} °C"
    if reading.problem is not None:
        return Check(name, "problem", reading.problem, "look at dmesg and the cooling; restart the machine")
    if card.backend != "cpu" and not own_build:
        return Check(name, "warning", f"{found}; the bundled llama.cpp has no {card.backend} support", _OWN_BUILD)
    return Check(name, "ok", found)


def check_nvidia(nvml: Nvml, sys_root: Path, cuda_version: Callable[[], int | None]) -> Check:
    """NVIDIA's driver: there when a card is, and its two halves of one version.

    `cuda_version` gives what libcuda reports (12040 is 12.4), None where it is missing.
    """
    try:
        nvml.nvmlInit()
        driver, supported = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetCudaDriverVersion()
    except nvml.NVMLError as error:
        return _no_nvml(error, sys_root)
    found = f"driver {driver}, CUDA {_dotted(supported)}"
    library = cuda_version()
    if library is None:
        mend = "install libcuda.so.1 (Debian: libcuda1); in a container use NVIDIA's container toolkit"
        return Check("nvidia", "warning", f"{found}, but libcuda.so.1 is missing", mend)
    if library != supported:
        mend = "two drivers are installed: remove one, or correct LD_LIBRARY_PATH"
        return Check("nvidia", "warning", f"{found}, but libcuda is of CUDA {_dotted(library)}", mend)
    return Check("nvidia", "ok", found)


def check_amd(sys_root: Path, dev_root: Path) -> Check:
    """AMD's compute driver: there and open to this user when a card is."""
    if not any(device.vendor == AMD for device in drm_devices(sys_root)):
        return Check("amd", "ok", "no AMD card")
    kfd = dev_root / "kfd"
    if not kfd.exists():
        mend = "load the kernel's amdgpu driver with compute (kfd)"
        return Check("amd", "warning", f"an AMD card, but no {kfd}", mend)
    if not os.access(kfd, os.R_OK | os.W_OK):
        mend = "add this user to the groups render and video, then log in again"
        return Check("amd", "warning", f"{kfd} is closed to this user", mend)
    return Check("amd", "ok", f"{kfd} is open")


def libcuda_version() -> int | None:
    """The CUDA version of the driver's library, e.g. 12040; None where there is none."""
    version = ctypes.c_int(0)
    try:
        refused = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if refused else version.value


def _no_nvml(error: Exception, sys_root: Path) -> Check:
    if getattr(error, "value", None) == _DRIVER_DIFFERS:
        return Check("nvidia", "problem", f"{error}", "the driver was updated while it ran: restart the machine")
    if any(device.vendor == NVIDIA for device in drm_devices(sys_root)) or (sys_root / "module" / "nvidia").exists():
        mend = "install NVIDIA's driver; in a container use NVIDIA's container toolkit"
        return Check("nvidia", "warning", f"an NVIDIA card, but its driver does not answer: {error}", mend)
    return Check("nvidia", "ok", "no NVIDIA card")


def _dotted(version: int) -> str:
    """CUDA's number as people write it: 12040 is 12.4."""
    return f"{version // 1000}.{version % 1000 // 10}"
