"""The cards of this machine: found by NVML, ROCm's sysfs and Vulkan, or given by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import SettingsInvalid
from infra.hardware.cards import Card, CardReading
from infra.hardware.host import HostMemory, cpu_card, host_memory, read_cpu
from infra.hardware.nvidia import Nvml, load_nvml, nvidia_cards, read_nvidia
from infra.hardware.sysfs import AMD, NVIDIA, read_rocm, rocm_cards
from infra.hardware.vulkan import vulkan_cards, vulkan_summary
from infra.settings import CardsSettings, EngineSpec
from infra.types import PoolId


@dataclass(frozen=True, slots=True)
class Machine:
    """Where facts of the machine come from; tests give their own."""

    nvml: Callable[[], Nvml] = load_nvml
    sys_root: Path = field(default=Path("/sys"))
    vulkan: Callable[[], str | None] = vulkan_summary
    memory: Callable[[], HostMemory] = host_memory


_HERE = Machine()


def detect(settings: CardsSettings, machine: Machine = _HERE) -> tuple[Card, ...]:
    """The cards that models may run on, the processor last; what the settings give by hand replaces all of it.

    Takes up to ten seconds where `vulkaninfo` hangs: call it off the loop.

    Raises:
        SettingsInvalid: a card by hand whose memory is neither given nor found.
    """
    found = _found(machine)
    if settings.engine_specs:
        return tuple(_by_hand(spec, found) for spec in settings.engine_specs)
    return found


def read_card(card: Card, machine: Machine = _HERE) -> CardReading:
    """A look at one card; whatever fails is said in the reading, nothing is raised."""
    if card.backend == "cpu":
        return read_cpu(machine.memory())
    if card.backend == "cuda":
        return read_nvidia(machine.nvml(), card, read_cpu(machine.memory()))
    if card.backend == "rocm" and card.uuid is not None:
        return read_rocm(machine.sys_root, card)
    return CardReading(None, None)


def _found(machine: Machine) -> tuple[Card, ...]:
    memory = machine.memory()
    nvidia = nvidia_cards(machine.nvml(), memory.total_bytes)
    rocm = rocm_cards(machine.sys_root)
    driven = frozenset({NVIDIA} if nvidia else ()) | frozenset({AMD} if rocm else ())
    vulkan = vulkan_cards(machine.vulkan(), machine.sys_root, memory.total_bytes, driven)
    return (*nvidia, *rocm, *vulkan, cpu_card(memory))


def _by_hand(spec: EngineSpec, found: tuple[Card, ...]) -> Card:
    """A card of the settings; what they leave out comes from the card that their environment names."""
    same = next((card for card in found if _is_meant(spec, card)), None)
    if spec.memory_mib is None and same is None:
        raise SettingsInvalid(
            f"cards.engine_specs entry {spec.name!r} needs memory_mib: no card of this machine matches its env",
            param="cards.engine_specs",
        )
    return Card(
        id=PoolId(spec.name),
        backend=spec.backend,
        name=same.name if same else spec.name,
        uuid=same.uuid if same else None,
        total_bytes=spec.memory_mib << 20 if spec.memory_mib is not None else same.total_bytes if same else 0,
        env=spec.env,
    )


def _is_meant(spec: EngineSpec, card: Card) -> bool:
    """Whether a card by hand is this one: the processor, or the one that the first pinning variable names."""
    if spec.backend != card.backend:
        return False
    return all(spec.env.get(name) == value for name, value in card.env.items() if name.endswith("VISIBLE_DEVICES"))
