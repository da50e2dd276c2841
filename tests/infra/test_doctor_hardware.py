"""The checks of the machine, on machines of every kind."""

from pathlib import Path

import pynvml
import pytest

from infra.doctor_hardware import (
    check_amd,
    check_card,
    check_memory,
    check_nvidia,
    check_processor,
    libcuda_version,
)
from infra.hardware.cards import Card, CardReading
from infra.hardware.host import HostMemory
from infra.types import PoolId
from tests.infra.hardware.fakes import GIB, FakeGpu, FakeNvml, FakeSys, no_nvml
from tests.infra.test_doctor import assert_mendable

CUDA = Card(PoolId("cuda-1"), "cuda", "NVIDIA H200", "GPU-1", 80 * GIB)


@pytest.fixture
def sys(tmp_path: Path) -> FakeSys:
    return FakeSys(tmp_path / "sys")


def test_processor() -> None:
    good = "processor: 0\nflags\t\t: fpu avx avx2 fma f16c bmi2\n"
    assert check_processor("x86_64", good, own_build=False).status == "ok"
    old = "flags : fpu sse avx f16c\n"
    assert_mendable(check_processor("x86_64", old, own_build=False), "problem", "without avx2, fma, bmi2")
    assert check_processor("x86_64", old, own_build=True).status == "ok"
    assert check_processor("x86_64", "", own_build=False).status == "ok"
    assert check_processor("aarch64", "Features : asimd\n", own_build=False).status == "ok"


def test_memory() -> None:
    assert check_memory(HostMemory(16 * GIB, 8 * GIB)).status == "ok"
    assert_mendable(check_memory(HostMemory(16 * GIB, GIB)), "warning", "1.0 of 16.0 GiB")
    assert_mendable(check_memory(HostMemory(16 * GIB, GIB // 2)), "problem", "0.5 of 16.0 GiB")


def test_card() -> None:
    reading = CardReading(70 * GIB, 41)
    assert check_card(CUDA, reading, own_build=True).found == "NVIDIA H200, 80.0 GiB, 41 °C"
    assert_mendable(check_card(CUDA, reading, own_build=False), "warning", "has no cuda support")
    lost = CardReading(None, None, "NVIDIA H200 does not answer: GPU is lost")
    assert_mendable(check_card(CUDA, lost, own_build=True), "problem", "GPU is lost")
    cpu = Card(PoolId("cpu"), "cpu", "CPU", None, 16 * GIB)
    assert check_card(cpu, CardReading(GIB, None), own_build=False).status == "ok"


def test_nvidia_driver(sys: FakeSys) -> None:
    nvml = FakeNvml(FakeGpu())
    assert check_nvidia(nvml, sys.root, lambda: 12080).found == "driver 570.86.15, CUDA 12.8"
    assert_mendable(check_nvidia(nvml, sys.root, lambda: None), "warning", "libcuda.so.1 is missing")
    assert_mendable(check_nvidia(nvml, sys.root, lambda: 12040), "warning", "libcuda is of CUDA 12.4")


def test_no_nvidia_driver(sys: FakeSys) -> None:
    assert check_nvidia(no_nvml(), sys.root, lambda: None).status == "ok"
    sys.add(0, "0x10de")
    assert_mendable(check_nvidia(no_nvml(), sys.root, lambda: None), "warning", "its driver does not answer")
    differs = FakeNvml(init_failure=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert_mendable(check_nvidia(differs, sys.root, lambda: None), "problem", "ersion")


def test_amd(sys: FakeSys, tmp_path: Path) -> None:
    assert check_amd(sys.root, tmp_path).status == "ok"
    sys.add_amd(0)
    assert_mendable(check_amd(sys.root, tmp_path), "warning", "no ")
    (tmp_path / "kfd").write_text("")
    assert check_amd(sys.root, tmp_path).status == "ok"


def test_an_amd_driver_closed_to_us(sys: FakeSys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.add_amd(0)
    (tmp_path / "kfd").write_text("")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may open everything
    assert_mendable(check_amd(sys.root, tmp_path), "warning", "closed to this user")


def test_libcuda_of_this_machine_is_a_version_or_none() -> None:
    version = libcuda_version()
    assert version is None or version >= 10000
