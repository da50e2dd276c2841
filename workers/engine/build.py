"""Building llama.cpp once for this machine: fetched, unpacked, compiled and proven under a cache folder.

Every stage leaves either its whole result or nothing, so a build that was cut off goes on where it stopped. A second
builder waits for the first and then finds its result.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

from infra.errors import EngineFailed, NotInstalled
from infra.files import make_private_folder, require_space, sha256_of, write_atomic
from infra.settings import inherited_environment
from workers.engine.recipe import Recipe, Toolchain, build_key, is_inside, missing_compiler, percent

Stage = Literal["wait", "tools", "download", "unpack", "configure", "compile", "verify", "done"]
TOOLS: Final = ("cmake>=3.28,<5", "ninja>=1.11,<2", "scikit-build-core>=0.11,<2")
"""What the private environment of the build holds; all from the package index, nothing from the system."""
_NEEDED_BYTES: Final = 3 * 1024**3
_LOCK_POLL_S: Final = 0.5
_ERROR_LINES: Final = 15
_STREAM_LIMIT_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a build stands; `percent` only while compiling."""

    stage: Stage
    percent: int | None = None
    line: str = ""


Report = Callable[[Progress], None]


async def find_toolchain() -> Toolchain:
    """Look for compilers and for an NVIDIA card that answers."""
    compiler = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    nvcc = shutil.which("nvcc") is not None and await _succeeds("nvcc", "--version")
    card = nvcc and shutil.which("nvidia-smi") is not None and await _succeeds("nvidia-smi", "-L")
    return Toolchain(compiler, nvcc, shutil.which("glslc") is not None, card)


async def build(recipe: Recipe, cache: Path, report: Report, *, tools: Toolchain, jobs: int | None = None) -> Path:
    """Make the recipe's program below `cache`, or find it made; return its path.

    `report` is called on the loop. `jobs` are compilers at once; None = one a core.

    Raises:
        NotInstalled: no C++ compiler, or no `venv` module; the message names what to install.
        DiskFull: the cache's disk has not the room.
        EngineFailed: a stage failed; the message has its last lines and names the log.
    """
    folder = cache / build_key(recipe)
    builder = _Builder(recipe, folder, report, jobs or os.cpu_count() or 1)
    if builder.finished():
        return builder.program
    if tools.compiler is None:
        raise NotInstalled(missing_compiler(sys.platform))
    await asyncio.to_thread(make_private_folder, folder)
    async with _locked(folder / "lock", report):
        if not builder.finished():
            require_space(folder, _NEEDED_BYTES)
            await builder.run()
    report(Progress("done", 100))
    return builder.program


class _Builder:
    """One build in one folder, the lock held."""

    def __init__(self, recipe: Recipe, folder: Path, report: Report, jobs: int) -> None:
        self._recipe = recipe
        self._folder = folder
        self._report = report
        self._jobs = jobs
        self._tools = folder / "tools"
        self._archive = folder / recipe.archive
        self._source = folder / "source"
        self._built = folder / "build"
        self._log = folder / "build.log"

    @property
    def program(self) -> Path:
        """Where the program stands once it is built."""
        return self._built / self._recipe.program

    def finished(self) -> bool:
        """Whether an earlier build came to its end here."""
        return (self._folder / "done.json").exists() and self.program.exists()

    async def run(self) -> None:
        """Every stage that is not done yet."""
        await self._make_tools()
        await self._download()
        await self._unpack()
        self._report(Progress("configure"))
        cmake = str(self._tools / "bin" / "cmake")
        flags = [*self._recipe.flags, f"-DCMAKE_MAKE_PROGRAM={self._tools / 'bin' / 'ninja'}"]
        flags.append(f"-DSKBUILD_PLATLIB_DIR={self._folder / 'install'}")
        await self._call("configure", cmake, "-S", str(self._source), "-B", str(self._built), "-G", "Ninja", *flags)
        self._report(Progress("compile", 0))
        targets = ["--target", *self._recipe.targets]
        await self._call("compile", cmake, "--build", str(self._built), "-j", str(self._jobs), *targets)
        self._report(Progress("verify"))
        await self._call("verify", str(self.program), "--version")
        done = {"project": self._recipe.project, "version": self._recipe.version, "flags": self._recipe.flags}
        await asyncio.to_thread(write_atomic, self._folder / "done.json", json.dumps(done).encode())

    async def _make_tools(self) -> None:
        """A private environment with cmake and ninja."""
        if (self._tools / "ok").exists():
            return
        self._report(Progress("tools"))
        await asyncio.to_thread(shutil.rmtree, self._tools, ignore_errors=True)
        try:
            await self._call("tools", sys.executable, "-m", "venv", str(self._tools))
        except EngineFailed as error:
            raise NotInstalled(
                f"building llama.cpp needs Python's venv module (Debian, Ubuntu: `apt install python3-venv`): {error}"
            ) from error
        await self._call("tools", *self._pip("install"), *TOOLS)
        (self._tools / "ok").touch()

    async def _download(self) -> None:
        if await asyncio.to_thread(_sha256, self._archive) == self._recipe.sha256:
            return
        self._report(Progress("download"))
        wanted = f"{self._recipe.project}=={self._recipe.version}"
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            how = ("--no-deps", "--no-build-isolation", "--no-binary", self._recipe.project, "--dest", scratch)
            await self._call("download", *self._pip("download"), *how, wanted)
            fetched = Path(scratch) / self._recipe.archive
            found = await asyncio.to_thread(_sha256, fetched)
            if found != self._recipe.sha256:
                raise EngineFailed(
                    f"the package index gave another {wanted} than the one this version of CoderAI was made for "
                    f"(sha256 {found}, expected {self._recipe.sha256}); nothing of it was run"
                )
            await asyncio.to_thread(os.replace, fetched, self._archive)

    async def _unpack(self) -> None:
        if not self._source.exists():
            self._report(Progress("unpack"))
            await asyncio.to_thread(unpack, self._archive, self._recipe.folder, self._source)

    def _pip(self, command: str) -> tuple[str, ...]:
        return (str(self._tools / "bin" / "python"), "-m", "pip", command, "--quiet", "--disable-pip-version-check")

    async def _call(self, stage: Stage, *argv: str) -> None:
        """Run a program in a group of its own, its output to the log and to whoever watches."""
        search = os.pathsep.join((str(self._tools / "bin"), inherited_environment().get("PATH", os.defpath)))
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=self._folder,
            env=inherited_environment() | {"PATH": search, "NINJA_STATUS": "[%f/%t] "},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=_STREAM_LIMIT_BYTES,
        )
        try:
            with self._log.open("ab") as log:
                last = await self._follow(stage, process, log)
            code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # compilers must not outlive a build that was called off
            await process.wait()
        if code != 0:
            said = "\n".join(last)
            raise EngineFailed(
                f"the build's stage {stage!r} failed (exit code {code}); see {self._log}. It ends:\n{said}"
            )

    async def _follow(self, stage: Stage, process: asyncio.subprocess.Process, log: IO[bytes]) -> list[str]:
        """Pass the output on line by line; return its last lines."""
        assert process.stdout is not None
        last: list[str] = []
        async for raw in process.stdout:
            log.write(raw)
            line = raw.decode("utf-8", "replace").rstrip()
            last = [*last, line][-_ERROR_LINES:]
            self._report(Progress(stage, percent(line) if stage == "compile" else None, line))
        return last


def unpack(archive: Path, folder: str, target: Path) -> None:
    """Unpack an archive's `folder` to `target`, whole or not at all.

    Raises:
        EngineFailed: a member leaves the folder, is no file, folder or inner link, or the folder is not there.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch, tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isfile() or member.isdir() or member.issym()) or not _stays_inside(member):
                raise EngineFailed(
                    f"{archive.name} holds {member.name!r}, which does not belong into it; delete the file"
                )
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(scratch)  # checked above, and filtered where Python can
        unpacked = Path(scratch) / folder
        if not unpacked.is_dir():
            raise EngineFailed(f"{archive.name} does not hold {folder}; delete the file and try again")
        os.replace(unpacked, target)


def _stays_inside(member: tarfile.TarInfo) -> bool:
    if member.issym():
        return is_inside(member.name) and is_inside(os.path.normpath(Path(member.name).parent / member.linkname))
    return is_inside(member.name)


@contextlib.asynccontextmanager
async def _locked(path: Path, report: Report) -> AsyncIterator[None]:
    """Hold a lock that ends with this process, whatever ends it."""
    with path.open("w") as lock:
        waiting = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    report(Progress("wait", line="another process is building the same; waiting for it"))
                waiting = True
                await asyncio.sleep(_LOCK_POLL_S)
        yield


async def _succeeds(*argv: str) -> bool:
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=quiet, stdout=quiet, stderr=quiet)
    except OSError:
        return False
    return await process.wait() == 0


def _sha256(path: Path) -> str | None:
    try:
        return sha256_of(path)
    except FileNotFoundError:
        return None
