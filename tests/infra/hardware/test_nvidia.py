"""NVIDIA cards as NVML shows them, failures included."""

import pynvml
import pytest

from infra.hardware.cards import CardReading
from infra.hardware.detect import detect, read_card
from infra.hardware.nvidia import load_nvml
from infra.settings import CardsSettings
from tests.infra.hardware.fakes import GIB, HOST, FakeGpu, FakeNvml, FakeSlice, FakeSys, machine

UUID = FakeGpu().uuid


def test_an_nvidia_card_is_pinned_by_uuid(sys: FakeSys) -> None:
    here = machine(sys, FakeNvml(FakeGpu()))
    card, cpu = detect(CardsSettings(), here)
    assert card.id == "cuda-11111111-2222-3333-4444-555555555555"
    assert (card.backend, card.name, card.uuid, card.total_bytes) == ("cuda", "NVIDIA H200", UUID, 80 * GIB)
    assert card.env == {"CUDA_VISIBLE_DEVICES": UUID, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert cpu.id == "cpu"
    assert read_card(card, here) == CardReading(70 * GIB, 40)


def test_mig_slices_stand_for_their_card(sys: FakeSys) -> None:
    slices = (FakeSlice("MIG-aa", 18 * GIB, 17 * GIB), None, FakeSlice("MIG-bb", 36 * GIB, 30 * GIB))
    here = machine(sys, FakeNvml(FakeGpu(mig=True, slices=slices), FakeGpu("GPU-other", mig=False)))
    first, second, whole, _ = detect(CardsSettings(), here)
    assert (first.id, first.env["CUDA_VISIBLE_DEVICES"]) == ("cuda-MIG-aa", "MIG-aa")
    assert (second.uuid, second.total_bytes) == ("MIG-bb", 36 * GIB)
    assert whole.id == "cuda-other"
    assert read_card(second, here) == CardReading(30 * GIB, 40)


def test_a_card_that_shares_the_hosts_memory(sys: FakeSys) -> None:
    here = machine(sys, FakeNvml(FakeGpu(name="NVIDIA GB10", memory=None, temperature_c=None)))
    card, _ = detect(CardsSettings(), here)
    assert card.total_bytes == HOST.total_bytes
    assert read_card(card, here) == CardReading(HOST.free_bytes, None)


def test_a_card_that_fails_at_start_is_left_out(sys: FakeSys, caplog: pytest.LogCaptureFixture) -> None:
    nvml = FakeNvml(FakeGpu("GPU-lost", failure=pynvml.NVML_ERROR_GPU_IS_LOST), FakeGpu())
    assert [card.uuid for card in detect(CardsSettings(), machine(sys, nvml))] == [UUID, None]
    assert "GPU is lost" in caplog.text


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_a_broken_driver_is_no_card(sys: FakeSys, code: int) -> None:
    assert len(detect(CardsSettings(), machine(sys, FakeNvml(FakeGpu(), init_failure=code)))) == 1


def test_a_card_lost_while_running_gives_a_reading_that_says_so(sys: FakeSys) -> None:
    gpu = FakeGpu()
    nvml = FakeNvml(gpu)
    here = machine(sys, nvml)
    card, _ = detect(CardsSettings(), here)
    gpu.failure = pynvml.NVML_ERROR_GPU_IS_LOST
    lost = read_card(card, here)
    assert lost.free_bytes is None
    assert lost.problem == "NVIDIA H200 does not answer: GPU is lost"
    nvml.gpus.clear()
    assert "does not answer" in (read_card(card, here).problem or "")
    nvml.init_failure = pynvml.NVML_ERROR_UNKNOWN
    assert "does not answer" in (read_card(card, here).problem or "")


def test_the_real_nvml_has_every_name_that_the_fake_has() -> None:
    real = load_nvml()
    names = [name for name in dir(FakeNvml) if name.startswith("nvml")]
    assert names
    assert all(callable(getattr(real, name)) for name in names)
    assert issubclass(real.NVMLError, Exception)
