"""Making packaged models ready to be served: joined, converted, verified, once."""

import asyncio
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from infra.errors import CoderAIError, InvalidRequest, LoadFailed, NotInstalled
from infra.files import make_private_folder
from infra.settings import inherited_environment
from infra.types import ModelName
from workers.packaged.catalogue import (
    INSTALL,
    PACKAGED,
    Find,
    PackagedModel,
    find_folder,
    is_ready,
    seal_path,
    served_path,
    sources_of,
    weights_path,
)
from workers.packaged.companions import place_companions
from workers.packaged.files import Pin, Progress, Report, Stage, Step, Stopped, sha256_of, whole_file, write_seal
from workers.packaged.parts import join_parts

LOCK_POLL_S = 0.2
CONVERT_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """How the preparation of one model went: `path` when it can be served, else `problem` says why not."""

    name: ModelName
    path: Path | None
    problem: str | None = None


async def prepare(
    home: Path,
    report: Report | None = None,
    models: tuple[PackagedModel, ...] = PACKAGED,
    find: Find = find_folder,
) -> tuple[Prepared, ...]:
    """Join, convert and verify what is missing, one model after the other; one that fails stops no other.

    `report` is called on the running loop. Safe to run in several processes at once. A cancelled call leaves
    nothing half-written.
    """
    done = []
    for model in models:
        if served_path(model, home, find) is None:
            continue
        try:
            path = await prepare_one(model, home, report, find)
        except (CoderAIError, OSError) as error:
            done.append(Prepared(model.name, None, str(error)))
        else:
            done.append(Prepared(model.name, path))
    return tuple(done)


async def prepare_one(model: PackagedModel, home: Path, report: Report | None = None, find: Find = find_folder) -> Path:
    """Make one model ready and return the path to serve it from; returns at once when it is.

    Raises:
        NotInstalled: its packages are not.
        InvalidRequest: what the packages hold is not what was pinned.
        DiskFull: no room to join or convert.
        LoadFailed: the conversion broke off.
    """
    path = served_path(model, home, find)
    if path is None:
        raise NotInstalled(f"the packages of {model.name} are not installed: {INSTALL}")
    if is_ready(model, home, find):
        return path
    stop = threading.Event()
    loop = asyncio.get_running_loop()

    def tell(progress: Progress) -> None:
        if report is not None:
            loop.call_soon_threadsafe(report, progress)

    work = asyncio.ensure_future(asyncio.to_thread(_make_ready, model, home, find, tell, stop))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        with suppress(Stopped):
            await work
        raise


def _make_ready(model: PackagedModel, home: Path, find: Find, tell: Report, stop: threading.Event) -> Path:
    path, served = weights_path(model, home, find), served_path(model, home, find)
    if path is None or served is None:
        raise NotInstalled(f"the packages of {model.name} are not installed: {INSTALL}")
    folder = make_private_folder(seal_path(model, home).parent)
    with _only_one(folder / f".{model.name}.lock", stop):
        if not is_ready(model, home, find):
            for leftover in (*folder.glob(f".{model.name}.*.part"), *folder.glob(f"{model.name}/.*.part")):
                leftover.unlink(missing_ok=True)
            sha256 = _make(model, path, sources_of(model, find), tell, stop)
            place_companions(model.companions, path.parent, find)
            write_seal(path, seal_path(model, home), sha256, model.made_from)
    return served


def _make(model: PackagedModel, path: Path, sources: tuple[Path, ...], tell: Report, stop: threading.Event) -> str:
    """Bring the file to serve into being; its sha256."""

    def step(stage: Stage, total_bytes: int) -> Step:
        return lambda done_bytes: tell(Progress(model.name, stage, done_bytes, total_bytes))

    verify = step("verify", model.source.size_bytes)
    if model.how != "convert" and _matches(path, model.source, verify, stop):
        return model.source.sha256
    if not sources:
        raise NotInstalled(f"{path} is damaged, and the packages of {model.name} are not installed: {INSTALL}")
    if model.how in ("join", "folder"):
        join_parts(sources, path, model.source, step("join", model.source.size_bytes), stop)
        return model.source.sha256
    if model.how == "in_place" or not _matches(sources[0], model.source, verify, stop):
        raise InvalidRequest(f"{sources[0]} is not the pinned file (sha256 {model.source.sha256}): {INSTALL}")
    with whole_file(path, model.size_bytes) as temporary:
        _convert(sources[0].parent, temporary)
        return sha256_of(temporary, step("convert", model.size_bytes), stop)


def _matches(path: Path, pin: Pin, step: Step, stop: threading.Event) -> bool:
    return path.is_file() and path.stat().st_size == pin.size_bytes and sha256_of(path, step, stop) == pin.sha256


def _convert(source: Path, temporary: Path) -> None:
    """Run the converter in a process of its own: numpy must not stay in ours."""
    argv = [sys.executable, "-P", "-m", "workers.packaged.minilm", str(source), str(temporary)]
    env = inherited_environment()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=CONVERT_LIMIT_S, env=env)
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"converting {source} to GGUF took over {CONVERT_LIMIT_S:.0f} s; the disk may hang") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise LoadFailed(f"{source} could not be converted to GGUF: {last}")


@contextmanager
def _only_one(lock: Path, stop: threading.Event) -> Iterator[None]:
    """Wait until no other process prepares this model; the lock goes with its holder.

    Raises:
        Stopped: `stop` was set while waiting.
    """
    with open(lock, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop.wait(LOCK_POLL_S):
                    raise Stopped from None
        yield
