"""`coderai doctor`: what is wrong with this machine or install, and how to mend it."""

import asyncio
import dataclasses
import json
import platform
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import psutil
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from api.cli.doctor_extras import check_extras
from api.cli.local import fetch
from infra.doctor import Check, check_config, check_database, check_home, check_port, check_python, check_spool
from infra.doctor_hardware import (
    check_amd,
    check_card,
    check_memory,
    check_nvidia,
    check_processor,
    libcuda_version,
)
from infra.doctor_processes import check_processes
from infra.doctor_recorder import check_dropped, check_recorder, check_set_aside
from infra.errors import CoderAIError, NotInstalled, SettingsInvalid
from infra.hardware.detect import detect, read_card
from infra.hardware.host import host_memory
from infra.hardware.nvidia import load_nvml
from infra.listen import RUN_FILE
from infra.recorder_status import SET_ASIDE_FILE, read_status
from infra.settings import LlamaSettings, Settings, config_path, inherited_environment, load_settings
from infra.supervisor.types import ChildState
from workers.engine.flags import read_flags
from workers.engine.piper.install import COMMAND, piper_python
from workers.packaged.catalogue import INSTALL, PACKAGED, Find, PackagedModel, find_folder, is_ready, served_path
from workers.types import ModelFormat
from workers.weights import read_weights

IMPORT_LIMIT_S: Final = 60.0
FRONT_LIMIT_S: Final = 5.0
"""A front that hangs must not hang the doctor."""
_COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red"}
_FRONT_HANGS: Final = "wait a minute, in which a front that hangs is ended; then restart `coderai serve`"
_IMPORT: Final = "import xllamacpp; print(xllamacpp.__version__)"


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON instead of a table.")] = False,
) -> None:
    """Look at this machine and install; say what is wrong and how to mend it. Exit code 1 if anything is."""
    checks = tuple(examine())
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(check) for check in checks], ensure_ascii=False, indent=2))
    else:
        show(checks, Console(highlight=False))
    if any(check.status == "problem" for check in checks):
        raise typer.Exit(1)


def show(checks: tuple[Check, ...], console: Console) -> None:
    """Print the checks as a table, what to do under what was found."""
    table = Table("check", "state", Column("found, and what to do", overflow="fold"))
    for check in checks:
        lines = check.found if not check.mend else f"{check.found}\n→ {check.mend}"
        table.add_row(check.name, f"[{_COLOURS[check.status]}]{check.status}[/]", escape(lines))
    console.print(table)


def examine() -> Iterator[Check]:
    """Every check, in the order of a start. With unusable settings only those of the machine follow."""
    version = sys.version_info
    yield check_python((version.major, version.minor, version.micro), struct.calcsize("P") * 8)
    try:
        settings = load_settings()
    except SettingsInvalid as error:
        yield check_config(config_path(), error.message)
        yield from machine_checks(None)
        return
    yield check_config(config_path(), None)
    yield check_home(settings.home)
    yield check_database(settings.sqlalchemy_url, None if settings.database_url else settings.at("coderai.db"))
    yield check_port(settings.server.host, settings.server.port, running_front(settings))
    yield from process_checks(settings)
    if settings.spooling:
        yield check_spool(settings.at("spool"), settings.record.spool_max_mib << 20)
    if settings.flows.server == "child":
        yield from recorder_checks(settings)
    yield check_engine(settings.llama)
    yield check_extras(settings)
    if settings.models.packaged:
        yield from (check_packaged(model, settings.home) for model in PACKAGED)
        yield check_piper()
    yield from machine_checks(settings)


def process_checks(settings: Settings) -> Iterator[Check]:
    """Whether the processes of the running install run, and how those ended that did not stay."""
    pid = running_front(settings)
    if pid is None or not psutil.pid_exists(pid):
        return
    try:
        told = json.loads(fetch(settings, "GET", "/admin/api/processes", timeout_s=FRONT_LIMIT_S))
    except CoderAIError as error:
        yield Check("processes", "problem", error.message, _FRONT_HANGS)
    else:
        yield check_processes([ChildState.model_validate(each) for each in told["processes"]])


def recorder_checks(settings: Settings) -> Iterator[Check]:
    """Whether runs are recorded, and which were not."""
    pid = running_front(settings)
    serving = pid is not None and psutil.pid_exists(pid)
    yield check_recorder(read_status(settings.home), serving)
    yield check_set_aside(settings.at("spool", SET_ASIDE_FILE))
    if not serving:
        return
    try:
        page = fetch(settings, "GET", "/metrics", timeout_s=FRONT_LIMIT_S)
    except CoderAIError as error:
        yield Check("dropped", "warning", error.message, _FRONT_HANGS)
        return
    yield check_dropped(*read_dropped(page.decode()))


def read_dropped(page: str) -> tuple[int, int]:
    """Of the metrics page: how many runs were left out but for their head, and how many altogether."""
    dropped = {
        sample.labels["what"]: int(sample.value)
        for family in text_string_to_metric_families(page)
        if family.name == "coderai_spool_dropped"
        for sample in family.samples
    }
    return dropped.get("detail", 0), dropped.get("run", 0)


def machine_checks(settings: Settings | None) -> Iterator[Check]:
    """Processor, memory, drivers and cards; the cards only with settings that say which."""
    own_build = settings is not None and settings.llama.server_bin is not None
    cpuinfo = Path("/proc/cpuinfo")
    yield check_processor(platform.machine(), cpuinfo.read_text() if cpuinfo.exists() else "", own_build)
    yield check_memory(host_memory())
    yield check_nvidia(load_nvml(), Path("/sys"), libcuda_version)
    yield check_amd(Path("/sys"), Path("/dev"))
    if settings is None:
        return
    try:
        cards = detect(settings.cards)
    except SettingsInvalid as error:
        yield Check("cards", "problem", error.message, "add memory_mib to that entry of cards.engine_specs")
        return
    yield from (check_card(card, read_card(card), own_build) for card in cards)


def running_front(settings: Settings) -> int | None:
    """The process of this install's front, if one has said that it runs."""
    try:
        pid = json.loads(settings.at(*RUN_FILE).read_bytes())["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) else None


def check_engine(llama: LlamaSettings) -> Check:
    """The llama.cpp in use runs: the wheel is imported in a process of its own, a server_bin is asked for its help."""
    if llama.server_bin is not None:
        try:
            flags = asyncio.run(read_flags(llama.server_bin))
        except NotInstalled as error:
            return Check("llama.cpp", "problem", error.message, "correct or remove llama.server_bin")
        return Check("llama.cpp", "ok", f"{llama.server_bin}, {len(flags)} flags")
    argv, env = [sys.executable, "-P", "-c", _IMPORT], inherited_environment()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=IMPORT_LIMIT_S, check=False, env=env)
    except subprocess.TimeoutExpired:
        return Check("llama.cpp", "problem", f"importing xllamacpp took over {IMPORT_LIMIT_S:g} s", "look at the disk")
    if done.returncode == -signal.SIGILL:
        mend = "run `coderai engines build llama`, which compiles for this processor"
        return Check("llama.cpp", "problem", "the bundled llama.cpp uses instructions that this processor lacks", mend)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        return Check("llama.cpp", "problem", f"xllamacpp cannot be imported: {last}", "install again: make serve")
    return Check("llama.cpp", "ok", f"xllamacpp {done.stdout.strip()}, CPU only")


def check_piper(root: Path | None = None) -> Check:
    """piper, which has an environment of its own below the cache folder."""
    python = piper_python(root)
    if python is None:
        return Check("piper", "warning", "not installed: /v1/audio/speech speaks with far services only", COMMAND)
    return Check("piper", "ok", str(python.parents[1]))


def check_packaged(model: PackagedModel, home: Path, find: Find = find_folder) -> Check:
    """A model that comes in packages: installed, and whole where it was made already."""
    name = f"model {model.name}"
    path = served_path(model, home, find)
    if path is None:
        missing = [package for package in model.packages if find(package) is None]
        return Check(name, "warning", f"not installed: {', '.join(missing)}", INSTALL)
    if not path.exists() or not is_ready(model, home, find):
        return Check(name, "ok", "installed; it is made ready and verified at the first start")
    try:
        if model.format is ModelFormat.GGUF:
            read_weights(path)
    except CoderAIError as error:
        return Check(name, "problem", error.message, f"remove {path}, then start again")
    return Check(name, "ok", f"{path}, verified")
