"""What is built and how: the tree, its flags for this machine, and the name under which the result is kept. Pure."""

import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

CUDA_NATIVE: Final = "-DCMAKE_CUDA_ARCHITECTURES=native"
_STEP = re.compile(r"^\[(\d+)/(\d+)\]")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What was found on this machine."""

    compiler: str | None
    """A C++ compiler, e.g. `g++`."""
    nvcc: bool = False
    glslc: bool = False
    nvidia_card: bool = False
    """A card answers now, so code for it alone is enough."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A source distribution with a CMake project at its top, and what to make of it."""

    project: str
    version: str
    sha256: str
    """Of the source archive."""
    flags: tuple[str, ...]
    targets: tuple[str, ...]
    program: str
    """The result that is run to see whether the build is sound, below the build folder."""

    @property
    def archive(self) -> str:
        """The name of the source archive."""
        return f"{self.folder}.tar.gz"

    @property
    def folder(self) -> str:
        """The folder that the archive holds."""
        return f"{self.project.replace('-', '_')}-{self.version}"


_FLAGS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=OFF",
    "-DGGML_RPC=ON",
    "-DLLAVA_BUILD=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)


def llama_recipe(tools: Toolchain) -> Recipe:
    """llama-cpp-python's vendored llama.cpp with its server and RPC, for the cards whose compilers are here."""
    flags = list(_FLAGS)
    if tools.nvcc:
        flags.append("-DGGML_CUDA=ON")
        flags += [CUDA_NATIVE] if tools.nvidia_card else []
    if tools.glslc:
        flags.append("-DGGML_VULKAN=ON")
    return Recipe(
        project="llama-cpp-python",
        version="0.3.36",
        sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        flags=tuple(flags),
        targets=("ggml", "llama", "ggml-rpc-server", "mtmd", "llama-server"),
        program="bin/llama-server",
    )


def build_key(recipe: Recipe, system: str | None = None) -> str:
    """The folder's name: version, platform and what the flags say, so that no two different builds share one."""
    system = system or f"{sys.platform}-{platform.machine()}"
    told = "\0".join((recipe.sha256, *recipe.flags, *recipe.targets))
    return f"{recipe.version}-{system}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def percent(line: str) -> int | None:
    """How far ninja says it is, in whole percent; None where the line is no step."""
    step = _STEP.match(line)
    if step is None:
        return None
    done, total = int(step.group(1)), int(step.group(2))
    return 100 * done // total if total else None


def missing_compiler(system: str) -> str:
    """The sentence for a machine without a C++ compiler."""
    install = {
        "darwin": "run `xcode-select --install`",
        "linux": "install one: `apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), `pacman -S gcc`",
    }.get(system, "install g++ or clang++")
    return f"building llama.cpp needs a C++ compiler, and neither c++, g++ nor clang++ is here; {install}"


def is_inside(name: str) -> bool:
    """Whether an archive member's name stays below the folder it is unpacked to."""
    path = PurePath(name)
    return not path.is_absolute() and ".." not in path.parts
