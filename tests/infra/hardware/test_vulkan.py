"""Cards that only Vulkan can drive."""

from pathlib import Path

import pytest

from infra.hardware.cards import CardReading
from infra.hardware.detect import detect, read_card
from infra.hardware.vulkan import vulkan_summary
from infra.settings import CardsSettings
from tests.infra.hardware.fakes import GIB, HOST, FakeGpu, FakeNvml, FakeSys, machine

SUMMARY = """
==========
VULKANINFO
==========

Devices:
========
GPU0:
	apiVersion         = 1.3.289
	vendorID           = 0x8086
	deviceID           = 0x56a0
	deviceType         = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
	deviceName         = Intel(R) Arc(tm) A770 Graphics (DG2)
GPU1:
	vendorID           = 0x10de
	deviceType         = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
	deviceName         = NVIDIA GeForce RTX 4090
GPU2:
	vendorID           = 0x10005
	deviceType         = PHYSICAL_DEVICE_TYPE_CPU
	deviceName         = llvmpipe (LLVM 17.0.6, 256 bits)
"""


def test_an_amd_card_without_the_compute_driver_is_left_to_vulkan(sys: FakeSys) -> None:
    sys.add(0, "0x1002", mem_info_vram_total=str(8 * GIB), resource=f"0x{0:016x} 0x{8 * GIB - 1:016x} 0x1")
    card, _ = detect(CardsSettings(), machine(sys))
    assert (card.id, card.backend, card.name, card.total_bytes) == ("vulkan-0", "vulkan", "AMD GPU", 8 * GIB)


def test_vulkan_names_what_nothing_better_drives(sys: FakeSys) -> None:
    sys.add(0, "0x8086")
    nvidia, intel, _ = detect(CardsSettings(), machine(sys, FakeNvml(FakeGpu()), SUMMARY))
    assert nvidia.backend == "cuda"
    assert (intel.id, intel.name) == ("vulkan-0", "Intel(R) Arc(tm) A770 Graphics (DG2)")
    assert intel.env == {"GGML_VK_VISIBLE_DEVICES": "0"}
    assert intel.total_bytes == HOST.total_bytes // 2
    assert read_card(intel, machine(sys)) == CardReading(None, None)


def test_without_vulkaninfo_the_vendor_is_enough(sys: FakeSys) -> None:
    sys.add(0, "0x1a03")  # a server's console graphics: no card for us
    sys.add(1, "0x8086")
    card, _ = detect(CardsSettings(), machine(sys))
    assert (card.id, card.name) == ("vulkan-0", "Intel GPU")


def test_vulkaninfo_that_fails_or_is_missing_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert vulkan_summary() is None
    program = tmp_path / "vulkaninfo"
    program.write_text("#!/bin/sh\necho GPU0:\nexit 1\n")
    program.chmod(0o755)
    assert vulkan_summary() is None
    program.write_text("#!/bin/sh\necho GPU0:\n")
    assert vulkan_summary() == "GPU0:\n"
