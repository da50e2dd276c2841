"""A card as a value: what it is, how a process is pinned to it, and what was read of it last."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import psutil

from infra.types import PoolId

Backend = Literal["cuda", "rocm", "vulkan", "cpu"]


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, a slice of one, or the processor (`cpu`).

    `uuid` is the driver's own name of it, where it has one. `total_bytes` is its memory (for `cpu`: RAM, or less
    where a container limits it). `env` pins a process to it, by UUID where the driver can.
    """

    id: PoolId
    backend: Backend
    name: str
    uuid: str | None
    total_bytes: int
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CardReading:
    """A look at a card. None means: it does not say. `problem` is set when the card could not be read at all."""

    free_bytes: int | None
    temperature_c: int | None
    problem: str | None = None


def physical_cores() -> int:
    """Processor cores that this process may use, hyperthreads not counted; at least 1."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))
