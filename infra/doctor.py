"""What may be wrong with an install, each as a small check that says how to mend it. Nothing here changes anything."""

import errno
import os
import re
import shutil
import socket
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psutil

from infra.database import open_database, require_current
from infra.errors import CoderAIError, DatabaseTooNew, DatabaseUnusable
from infra.settings import Settings
from infra.tables import HEAD

OLDEST_PYTHON: Final = (3, 11)
LITTLE_SPACE_BYTES: Final = 2 << 30
TOO_LITTLE_SPACE_BYTES: Final = 256 << 20
FULL_SHARE: Final = 0.8
"""How full the spool may be before it is worth a word."""

_SECRET: Final = re.compile(rb"api_key|hub_token|://[^/\s]+:[^/\s]+@")

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `mend` says what to do about a warning or a problem."""

    name: str
    status: Status
    found: str
    mend: str = ""


def check_python(version: tuple[int, int, int], bits: int) -> Check:
    """Python's version, and that it is a 64-bit build: the wheels are."""
    found = f"{'.'.join(str(part) for part in version)}, {bits}-bit"
    if version[:2] < OLDEST_PYTHON or bits != 64:
        return Check("python", "problem", found, "use a 64-bit Python of 3.11 or newer: make serve PYTHON=/path/to/it")
    return Check("python", "ok", found)


def check_home(home: Path) -> Check:
    """The install's directory: private, writable, and on a disk with room."""
    existing = next((folder for folder in (home, *home.parents) if folder.exists()), home)
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        mend = f"chown {existing} to this user, or set CODERAI_HOME"
        return Check("home", "problem", f"{home} cannot be written", mend)
    free_bytes = shutil.disk_usage(existing).free
    found = f"{home}, {free_bytes / 2**30:.1f} GiB free"
    if free_bytes < TOO_LITTLE_SPACE_BYTES:
        return Check("home", "problem", found, "free some space, or set CODERAI_HOME to a folder on another disk")
    if existing == home and stat.S_IMODE(home.stat().st_mode) & 0o077:
        return Check("home", "warning", f"{found}; others can look into it", f"chmod 700 {home}")
    if free_bytes < LITTLE_SPACE_BYTES:
        return Check("home", "warning", found, "free some space: models take gigabytes")
    return Check("home", "ok", found if existing == home else f"{found}; it is made at the first start")


def check_config(path: Path, settings_error: str | None) -> Check:
    """The settings file: readable, valid, private if it holds a secret, without keys that nothing reads.

    `settings_error` is what loading the settings, file and environment, answered with.
    """
    if settings_error is not None:
        mend = "correct or remove that key; docs/reference/configuration.md has them all"
        return Check("settings", "problem", settings_error, mend)
    try:
        content = path.read_bytes()
        known = tomllib.loads(content.decode())
    except FileNotFoundError:
        return Check("settings", "ok", f"no {path}: defaults and environment hold")
    except (OSError, ValueError) as error:
        return Check("settings", "problem", f"{path} cannot be read: {error}", f"make {path} readable TOML")
    unknown = sorted(set(known) - set(Settings.model_fields))
    if unknown:
        found = f"{path}: nothing reads {', '.join(unknown)}"
        return Check("settings", "warning", found, "remove or rename these keys")
    if path.stat().st_mode & 0o077 and _SECRET.search(content):
        return Check("settings", "warning", f"others can read {path}, which holds secrets", f"chmod 600 {path}")
    return Check("settings", "ok", str(path))


def check_database(url: str, file: Path | None) -> Check:
    """The database answers, and this version knows its schema. `file` is SQLite's: a missing one is not made."""
    if file is not None and not file.exists():
        return Check("database", "ok", f"no {file} yet: it is made at the first start")
    try:
        database = open_database(url)
    except CoderAIError as error:
        return Check("database", "problem", error.message, "see the message; database_url or its server must be mended")
    try:
        require_current(database)
    except DatabaseTooNew as error:
        return Check("database", "problem", error.message, "start the newer version of CoderAI that wrote it")
    except DatabaseUnusable as error:
        return Check("database", "warning", error.message, "the next `coderai serve` brings it up to date")
    finally:
        database.close()
    return Check("database", "ok", f"{database.name}, revision {HEAD}")


def check_port(host: str, port: int, own_pid: int | None) -> Check:
    """The client port can be listened on, or this very install does. `own_pid` is its front's process, if one runs."""
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        mend = "set server.host to an address of this machine"
        return Check("port", "problem", f"{host} is no address: {error.strerror}", mend)
    except OSError as error:
        return _unusable_port(where, port, own_pid, error)
    return Check("port", "ok", f"{where} is free" if port else "a free port is taken at each start")


def check_spool(directory: Path, max_bytes: int) -> Check:
    """How full the spool of finished runs is."""
    try:
        used_bytes = sum(_size_bytes(path) for path in directory.glob("*.seg"))
    except OSError as error:
        return Check("spool", "warning", f"{directory} cannot be read: {error.strerror}", f"make {directory} readable")
    found = f"{used_bytes / 2**20:.1f} of {max_bytes / 2**20:.0f} MiB"
    if used_bytes > FULL_SHARE * max_bytes:
        mend = "records of runs will be dropped: let it drain, or raise record.spool_max_mib"
        return Check("spool", "warning", found, mend)
    return Check("spool", "ok", found)


def _size_bytes(segment: Path) -> int:
    """Nothing for one that the drainer has removed since its folder was read."""
    try:
        return segment.stat().st_size
    except FileNotFoundError:
        return 0


def _unusable_port(where: str, port: int, own_pid: int | None, error: OSError) -> Check:
    if error.errno == errno.EADDRINUSE:
        pid, name = _listener(port)
        if pid is not None and pid == own_pid:
            return Check("port", "ok", f"CoderAI is serving on {where} (process {pid})")
        who = f"process {pid} ({name})" if pid else "another process"
        mend = "end it, or set CODERAI_SERVER__PORT to another port"
        return Check("port", "problem", f"{where} is taken by {who}", mend)
    if error.errno == errno.EACCES:
        return Check("port", "problem", f"{where} may not be used", "set CODERAI_SERVER__PORT to 1024 or more")
    return Check("port", "problem", f"{where}: {error.strerror}", "set server.host to an address of this machine")


def _listener(port: int) -> tuple[int | None, str]:
    """Who listens on a port, as far as this user may know."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                return connection.pid, psutil.Process(connection.pid).name() if connection.pid else ""
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None, ""
    return None, ""
