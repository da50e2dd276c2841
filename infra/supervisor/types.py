"""What the supervisor knows of a child, and what those who ask for children may expect of it."""

from collections.abc import Callable
from typing import Final, Literal, Protocol

from pydantic import Field

from infra.types import Frozen, Json

EX_CONFIG: Final = 78
"""Exit code (sysexits.h) of a child that says: starting me again will not help. Quarantined at once."""


class ChildSpec(Frozen):
    """A process to keep running.

    `{port}` in `argv` or in a value of `env` is replaced at each start by a free loopback port, so that a restart
    never meets a port that somebody took meanwhile. `env` adds to the inherited environment. `secret_env` does too and
    is never logged or shown. `note` is the owner's own JSON: given back as it is, also to an owner that has restarted.
    """

    name: str = Field(min_length=1)
    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    secret_env: dict[str, str] = Field(default_factory=dict, repr=False)
    inherit_fd: int | None = None
    """A descriptor of the supervisor that this child keeps (the front's link)."""
    keep_port: bool = False
    """Whether `{port}` stays what it was at the first start, for as long as it can be had."""
    stop_grace_s: float = 10.0
    """Seconds between SIGTERM and SIGKILL."""
    pulse: bool = False
    """Whether it gives signs of life (`infra.pulse`): then it is ended and started again when they do not come."""
    note: Json = None


ChildStatus = Literal["running", "backoff", "quarantined", "stopped"]


class ChildState(Frozen):
    """A child at one moment. `incarnation` counts its starts, from 1; `reason` says how the last process ended."""

    name: str
    status: ChildStatus
    pid: int | None = None
    port: int | None = None
    incarnation: int = 0
    reason: str | None = None
    log_tail: tuple[str, ...] = ()
    """The last lines that the process wrote, newest last; at most 20."""
    note: Json = None


class Children(Protocol):
    """The supervisor as its users see it: the real one in its own process, a link to it, or a fake in tests."""

    async def start(self, spec: ChildSpec) -> ChildState:
        """Start a child and return once its process exists (not: once it is ready).

        A name that is in use answers with the state of the child that has it; nothing is started twice.
        """
        ...

    async def stop(self, name: str) -> None:
        """SIGTERM, then SIGKILL after the grace; return when the process is gone. An unknown name is no error."""
        ...

    def states(self) -> dict[str, ChildState]:
        """Every child by name, without asking anybody."""
        ...

    def subscribe(self, listener: Callable[[ChildState], None]) -> None:
        """Call `listener` with every change of any child, on this loop, soon after it happened."""
        ...
