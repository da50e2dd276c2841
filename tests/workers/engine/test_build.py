"""The builder with a cmake of a few lines, so that its stages, lock and resumption can be seen in milliseconds."""

import asyncio
import hashlib
import io
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from infra.errors import EngineFailed, NotInstalled
from tests.infra.supervisor.programs import alive, until
from workers.engine.build import Progress, build, find_toolchain, unpack
from workers.engine.recipe import Recipe, Toolchain, build_key

TOOLS = Toolchain("g++")

FAKE_CMAKE = f"""#!{sys.executable} -IS
import os, pathlib, sys, time
here = pathlib.Path.cwd()
with open(here / "calls", "a") as calls:
    print("build" if "--build" in sys.argv else "configure", file=calls)
if "--build" in sys.argv:
    plan = (here / "source" / "CMakeLists.txt").read_text().strip()
    print("[1/4] compiling a", flush=True)
    if plan == "broken":
        print("a.cpp:1: error: expected ';'")
        sys.exit(2)
    if plan == "slow":
        (here / "pid").write_text(str(os.getpid()))
        time.sleep(600)
    if plan == "steady":
        time.sleep(0.5)
    print("[2/4] compiling b", flush=True)
    program = here / "build" / "bin" / "tool"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\\necho version 1\\n")
    program.chmod(0o755)
    print("[4/4] linking", flush=True)
"""

FAKE_PYTHON = f"""#!{sys.executable} -IS
import pathlib, shutil, sys
assert sys.argv[1:4] == ["-m", "pip", "download"], sys.argv
dest = sys.argv[sys.argv.index("--dest") + 1]
for archive in pathlib.Path.cwd().parent.glob("index/*"):
    shutil.copy(archive, dest)
"""


def archive(path: Path, files: dict[str, str]) -> str:
    """Write a tar.gz; return its sha256."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def prepare(cache: Path, plan: str = "fine") -> Recipe:
    """A recipe, its archive in a stand-in for the package index, and a build folder that has its tools."""
    (cache / "index").mkdir()
    recipe = Recipe("a-tool", "1.0", "", ("-DX=ON",), ("tool",), "bin/tool")
    digest = archive(cache / "index" / recipe.archive, {"a_tool-1.0/CMakeLists.txt": plan})
    recipe = replace(recipe, sha256=digest)
    tools = cache / build_key(recipe) / "tools"
    (tools / "bin").mkdir(parents=True)
    for name, text in (("cmake", FAKE_CMAKE), ("python", FAKE_PYTHON)):
        (tools / "bin" / name).write_text(text)
        (tools / "bin" / name).chmod(0o755)
    (tools / "ok").touch()
    return recipe


def calls(cache: Path, recipe: Recipe) -> list[str]:
    return (cache / build_key(recipe) / "calls").read_text().split()


async def test_from_nothing_to_a_program_and_never_again(tmp_path: Path) -> None:
    recipe = prepare(tmp_path)
    seen: list[Progress] = []
    program = await build(recipe, tmp_path, seen.append, tools=TOOLS)
    assert program.exists()
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["download", "unpack", "configure", "compile", "verify", "done"]
    assert [progress.percent for progress in seen if progress.percent is not None] == [0, 25, 50, 100, 100]
    assert await build(recipe, tmp_path, seen.append, tools=Toolchain(None)) == program
    assert calls(tmp_path, recipe) == ["configure", "build"]


async def test_a_second_builder_waits_and_finds_the_result(tmp_path: Path) -> None:
    recipe = prepare(tmp_path, "steady")
    first: list[Progress] = []
    second: list[Progress] = []
    one, other = await asyncio.gather(
        build(recipe, tmp_path, first.append, tools=TOOLS), build(recipe, tmp_path, second.append, tools=TOOLS)
    )
    assert one == other
    stages = [[progress.stage for progress in seen] for seen in (first, second)]
    assert ["wait", "done"] in stages
    assert calls(tmp_path, recipe) == ["configure", "build"]


async def test_a_build_called_off_leaves_no_compiler_and_goes_on_later(tmp_path: Path) -> None:
    recipe = prepare(tmp_path, "slow")
    folder = tmp_path / build_key(recipe)
    task = asyncio.create_task(build(recipe, tmp_path, lambda _: None, tools=TOOLS))
    await until((folder / "pid").exists)
    await until(lambda: bool((folder / "pid").read_text()))
    pid = int((folder / "pid").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not alive(pid))
    (folder / "source" / "CMakeLists.txt").write_text("fine")
    seen: list[Progress] = []
    await asyncio.wait_for(build(recipe, tmp_path, seen.append, tools=TOOLS), 20)
    assert {progress.stage for progress in seen}.isdisjoint({"download", "unpack", "wait"})


async def test_a_failure_shows_its_last_lines_and_the_log(tmp_path: Path) -> None:
    recipe = prepare(tmp_path, "broken")
    with pytest.raises(EngineFailed, match="stage 'compile' failed") as caught:
        await build(recipe, tmp_path, lambda _: None, tools=TOOLS)
    assert "error: expected ';'" in caught.value.message
    log = tmp_path / build_key(recipe) / "build.log"
    assert str(log) in caught.value.message
    assert "expected ';'" in log.read_text()


async def test_another_archive_than_ours_is_not_used(tmp_path: Path) -> None:
    recipe = prepare(tmp_path)
    archive(tmp_path / "index" / recipe.archive, {"a_tool-1.0/CMakeLists.txt": "evil"})
    with pytest.raises(EngineFailed, match="nothing of it was run"):
        await build(recipe, tmp_path, lambda _: None, tools=TOOLS)
    assert not (tmp_path / build_key(recipe) / "source").exists()


async def test_a_cut_off_download_is_made_anew(tmp_path: Path) -> None:
    recipe = prepare(tmp_path)
    (tmp_path / build_key(recipe) / recipe.archive).write_bytes(b"half")
    assert (await build(recipe, tmp_path, lambda _: None, tools=TOOLS)).exists()


async def test_no_compiler_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    recipe = prepare(tmp_path)
    with pytest.raises(NotInstalled, match="needs a C\\+\\+ compiler"):
        await build(recipe, tmp_path, lambda _: None, tools=Toolchain(None))
    assert not (tmp_path / build_key(recipe) / recipe.archive).exists()


@pytest.mark.parametrize("kind", ["above", "absolute", "link out", "device", "hard link"])
def test_an_archive_that_reaches_out_is_refused(tmp_path: Path, kind: str) -> None:
    member = tarfile.TarInfo({"above": "f/../../x", "absolute": "/etc/x"}.get(kind, "f/x"))
    member.type = {"link out": tarfile.SYMTYPE, "device": tarfile.CHRTYPE, "hard link": tarfile.LNKTYPE}.get(
        kind, tarfile.REGTYPE
    )
    member.linkname = "../../outside"
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(member)
    with pytest.raises(EngineFailed, match="does not belong into it"):
        unpack(tmp_path / "a.tar.gz", "f", tmp_path / "target")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz"]


def test_an_archive_of_something_else_leaves_nothing(tmp_path: Path) -> None:
    archive(tmp_path / "a.tar.gz", {"other/x": "y"})
    with pytest.raises(EngineFailed, match="does not hold f"):
        unpack(tmp_path / "a.tar.gz", "f", tmp_path / "target")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz"]


async def test_a_real_cmake_and_ninja(tmp_path: Path) -> None:
    found = {name: shutil.which(name) for name in ("cmake", "ninja", "cc")}
    if None in found.values():
        pytest.skip(f"needs cmake, ninja and a C compiler on this machine: {found}")
    recipe = prepare(tmp_path)
    folder = tmp_path / build_key(recipe)
    for name in ("cmake", "ninja"):
        (folder / "tools" / "bin" / name).unlink(missing_ok=True)
        (folder / "tools" / "bin" / name).symlink_to(str(found[name]))
    project = (
        "cmake_minimum_required(VERSION 3.20)\nproject(a C)\nset(CMAKE_RUNTIME_OUTPUT_DIRECTORY bin)\n"
        "add_executable(tool a.c)\n"
    )
    (folder / "source").mkdir()
    (folder / "source" / "CMakeLists.txt").write_text(project)
    (folder / "source" / "a.c").write_text("int main(void) { return 0; }\n")
    seen: list[Progress] = []
    assert (await build(recipe, tmp_path, seen.append, tools=TOOLS)).exists()
    assert max(progress.percent or 0 for progress in seen if progress.stage == "compile") == 100


async def test_the_toolchain_is_looked_for() -> None:
    tools = await find_toolchain()
    assert tools.nvcc or not tools.nvidia_card
