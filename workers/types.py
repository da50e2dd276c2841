"""The nouns of the workers: what a model is, what a step demands, what the cluster looks like, where a step went.

Hot values are frozen slotted dataclasses (made once a request); what crosses a boundary is a `Frozen` model.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, SecretStr, model_validator

from infra.types import EngineId, Frozen, Json, ModelName, PoolId


class Capability(StrEnum):
    """What a model does."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    STT = "stt"
    TTS = "tts"
    OCR = "ocr"
    IMAGES = "images"
    VIDEO = "video"


class ModelFormat(StrEnum):
    """What the weights are, and so which runtime serves them; `service` has none here.

    `whisper` is a folder that CTranslate2 reads; `rapidocr` a folder of ONNX files; `piper` a folder with a voice;
    `diffusers` a pipeline's folder (`model_index.json`); `sentence-transformers` a transformer's folder that gives
    vectors or scores.
    """

    GGUF = "gguf"
    WHISPER = "whisper"
    RAPIDOCR = "rapidocr"
    PIPER = "piper"
    DIFFUSERS = "diffusers"
    SENTENCE_TRANSFORMERS = "sentence-transformers"
    SERVICE = "service"


class Pooling(StrEnum):
    """How token states become one vector; `rank` is a cross-encoder's score (llama.cpp's pooling types)."""

    NONE = "none"
    MEAN = "mean"
    CLS = "cls"
    LAST = "last"
    RANK = "rank"


class Distribute(Frozen):
    """How a request for the model may be spread over several engines."""

    enabled: bool = True
    nodes: tuple[str, ...] = ()
    """Pools or engines that may take parts; empty = every one that can serve the model."""
    max_parts: int = Field(default=64, ge=1, le=1024)
    min_items: int | None = Field(default=None, ge=2)
    """A request of fewer items is not split; None = what suits the endpoint."""
    chunk_seconds: float = Field(default=30.0, ge=5.0, le=600.0)
    """Length of the windows that a recording is cut into, at the most."""
    hedge: bool = False
    """Start a part that is late once more on an idle engine, and take the first answer."""


class ModelEntry(Frozen):
    """One model of the catalogue: a row of the file, of the database, or one that came in a package.

    Exactly one of `path` and `service_url` is set. `api_key` is the far service's, never the caller's.
    """

    name: ModelName = Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$")
    aliases: tuple[ModelName, ...] = ()
    format: ModelFormat
    capabilities: tuple[Capability, ...] = Field(min_length=1)
    source: Literal["file", "database", "package"] = "database"

    path: Path | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    weights_bytes: int = Field(default=0, ge=0)
    architecture: str | None = None
    context_tokens: int | None = Field(default=None, ge=1)
    """Longest context of one request, in tokens; None = the smaller of what the model was trained for and 8192."""
    embedding_dimensions: int | None = None
    pooling: Pooling | None = None
    gpu_layers: int = Field(default=-1, ge=-1)
    """Layers on the card; -1 = all that fit."""
    offload: Literal["none", "model", "sequential"] = "none"
    """Of a pipeline of diffusers: what waits in RAM until it is used, for a card that is too small: each of its models
    (`model`), or each of their layers (`sequential`, slow)."""
    rerank_method: Literal["cross_encoder", "cosine"] | None = None

    service_url: str | None = Field(default=None, pattern=r"^https?://")
    served_model: str | None = None
    api_key: SecretStr | None = None

    engine: PoolId | None = None
    """Pin: the pool this model must run on."""
    max_instances: int = Field(default=4, ge=1, le=1024)
    """Requests decoded at once (slots)."""
    queue_max_waiting: int = Field(default=64, ge=0, le=100_000)
    keep_resident: bool = False
    sampling: dict[str, Json] = Field(default_factory=dict)
    """Sampling defaults used where the request is silent, e.g. `{"temperature": 0.7}`."""
    distribute: Distribute = Distribute()

    @model_validator(mode="after")
    def _one_source(self) -> "ModelEntry":
        if (self.path is None) == (self.service_url is None):
            raise ValueError("give either a path to weights or a service_url, not both and not neither")
        return self


@dataclass(frozen=True, slots=True)
class Demand:
    """What a step needs: a model in a capability; `affinity_key` names its conversation.

    `home` is the pool that a part of a request was planned for: it goes there if it can, else, and on its second try,
    anywhere, but nothing is unloaded for it. `idle`: only an engine that holds the model and does nothing will do.
    `patient`: nobody waits for its answer, so that others may overtake it.
    """

    model: ModelName
    capability: Capability
    affinity_key: str | None = None
    pin: PoolId | None = None
    home: PoolId | None = None
    idle: bool = False
    patient: bool = False


EngineState = Literal["ready", "loading", "down", "quarantined"]


class EngineView(NamedTuple):
    """One engine as the router sees it. `incarnation` grows by one with each start of its process."""

    engine: EngineId
    model: ModelName
    pool: PoolId
    state: EngineState
    slots: int
    in_flight: int
    local: bool
    incarnation: int = 0
    reason: str = ""
    """Why it is down or quarantined, or how far a load is."""
    paused: str | None = None
    """Why its pool takes no new work, else None."""
    full: str | None = None
    """Why its pool takes no more than it has at this moment (an operator's limit), else None."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """A work pool as the router sees it; bytes are of the card's memory (RAM for `cpu`)."""

    pool: PoolId
    backend: Literal["cuda", "rocm", "vulkan", "cpu", "service"]
    total_bytes: int
    free_bytes: int
    reclaimable_bytes: int = 0
    """What unloading every idle model would free."""
    reserve_bytes: int = 0
    """What of the total no model gets."""
    unusable: str | None = None
    """Why no engine of ours can run there (a driver or a build is missing), with what to do."""
    paused: str | None = None
    """Why it takes no new work (too hot, paused by the operator), else None."""


class Snapshot(NamedTuple):
    """The cluster at one moment: what a pure planner or router may look at."""

    pools: tuple[PoolView, ...]
    engines: tuple[EngineView, ...]


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A candidate that was not taken, and why."""

    candidate: str
    reason: str


Action = Literal["use", "queue", "load", "wait_load", "none"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a step goes: use an engine's free slot, queue for one, load the model on a pool, or nowhere.

    `none` leaves `pool` empty; `reason` then says what would have to change, and `lasting` that none of it will change
    by itself: somebody has to do something.
    """

    action: Action
    pool: PoolId | None
    engine: EngineId | None
    reason: str
    passed_over: tuple[PassedOver, ...] = field(default=())
    lasting: bool = False
