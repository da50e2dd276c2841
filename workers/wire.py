"""The shapes that the front shares with its engine processes and with the worker process of the job lane."""

from typing import Literal, NamedTuple

from pydantic import Field

from infra.types import EngineId, Frozen, Json, KeyName, ModelName, PoolId, RunId
from workers.types import Demand, ModelEntry, Placement


class EngineLaunch(Frozen):
    """One model to be served by one process on one card; also the note that a restarted front finds its engines by.

    `entry` is a local model (it has a path). `slots` requests are decoded at once, each with up to `context_tokens`
    of context. `threads` are CPU threads for decoding. `env` pins the process to its card.
    """

    engine: EngineId
    entry: ModelEntry
    pool: PoolId
    backend: Literal["cuda", "rocm", "vulkan", "cpu"]
    env: dict[str, str] = Field(default_factory=dict)
    slots: int
    context_tokens: int
    threads: int
    cache_ram_mib: int
    memory_bytes: int = 0
    """What the ledger holds for it."""


LLAMA_TOKEN_VARIABLE = "LLAMA_API_KEY"
"""Environment variable with the key that an engine process demands; llama-server's own name for it."""
RUN_HEADER = "X-Coderai-Run"
STEP_HEADER = "X-Coderai-Step"
PART_HEADER = "X-Coderai-Part"
"""Of a request to an engine process: whose work it is, and which part of it (`2/4`), so that its progress is found."""


class Mark(NamedTuple):
    """Whose work a request to an engine is; a step of `requests` such requests has `before` this one."""

    run: RunId
    step: str
    before: int = 0
    requests: int = 1


class Working(Frozen):
    """One request that an engine process works on (`GET /v1/progress`): `current` of `total` in the named phase.

    `run` and `step` are None where the request did not say. `before` requests of `requests` in the step are done.
    `per_s` is the pace in this phase.
    """

    run: RunId | None
    step: str | None
    before: int = 0
    requests: int = 1
    phase: str
    current: int
    total: int
    per_s: float
    elapsed_s: float


class WorkingList(Frozen):
    """All that an engine process works on."""

    data: tuple[Working, ...]


NOT_INSTALLED = "not installed: "
"""What an engine process says before the reason, when a library is missing: no other try will help."""


class LeaseAsk(Frozen):
    """A job's step asks the front for a slot: the first message on `/internal/leases`, which holds the lease open.

    `tried` are engine incarnations that have failed the step already. `peers` are the steps of the plan that do the
    same as this one, itself included; `done` names those of them that have their results.
    """

    run: RunId
    step: str
    flow: str
    key: KeyName
    model: ModelName
    demand: Demand
    tried: tuple[tuple[EngineId, int], ...] = ()
    peers: int = 1
    done: tuple[str, ...] = ()


class LeaseGiven(Frozen):
    """The slot: all that a task needs of its engine. `headers` carry the engine's own key."""

    kind: Literal["given"] = "given"
    engine: EngineId
    entry: ModelEntry
    pool: PoolId
    local: bool
    slots: int
    base_url: str
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    incarnation: int
    props: dict[str, Json] = Field(default_factory=dict)
    placement: Placement
    waited_s: float


class LeaseRefused(Frozen):
    """No slot: the front's error. `error` is the name of its class."""

    kind: Literal["refused"] = "refused"
    error: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None


class LeaseOver(Frozen):
    """The job's last message: how the step went. A connection that ends without it is a step that was cancelled."""

    failed: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    units: float = 0.0
