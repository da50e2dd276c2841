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

from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from infra.errors import SettingsInvalid
from infra.sections import (
    AuthSettings,
    CardsSettings,
    EngineSpec,
    FilesSettings,
    FlowsSettings,
    LlamaSettings,
    LogSettings,
    LorasSettings,
    ModelsSettings,
    RecordSettings,
    ResponsesSettings,
    Section,
    ServerSettings,
)

__all__ = [
    "INTERNAL_TOKEN_VARIABLE",
    "LINK_FD_VARIABLE",
    "PULSE_FD_VARIABLE",
    "AuthSettings",
    "CardsSettings",
    "EngineSpec",
    "FilesSettings",
    "FlowsSettings",
    "LlamaSettings",
    "LogSettings",
    "LorasSettings",
    "ModelsSettings",
    "RecordSettings",
    "ResponsesSettings",
    "Section",
    "ServerSettings",
    "Settings",
    "cache_root",
    "config_path",
    "handed_over",
    "inherited_environment",
    "is_loopback",
    "link_fd",
    "load_settings",
    "pulse_fd",
    "secret_environment",
]


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
    responses: ResponsesSettings = ResponsesSettings()
    log: LogSettings = LogSettings()
    files: FilesSettings = FilesSettings()
    loras: LorasSettings = LorasSettings()
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
    return _descriptor(LINK_FD_VARIABLE)


PULSE_FD_VARIABLE = "CODERAI_PULSE_FD"
"""Where a process finds the descriptor that it gives its signs of life to."""


def pulse_fd() -> int | None:
    """The descriptor for our signs of life; None in a process whose supervisor waits for none."""
    return _descriptor(PULSE_FD_VARIABLE)


def _descriptor(variable: str) -> int | None:
    value = os.environ.get(variable, "")  # noqa: TID251
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
