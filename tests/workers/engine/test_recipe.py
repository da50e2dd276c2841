"""What is built, and under which name."""

import dataclasses

import pytest

from workers.engine.recipe import (
    CUDA_NATIVE,
    Toolchain,
    build_key,
    is_inside,
    llama_recipe,
    missing_compiler,
    percent,
)

PLAIN = llama_recipe(Toolchain("g++"))


def test_what_every_build_has() -> None:
    assert {"-DGGML_NATIVE=OFF", "-DGGML_RPC=ON", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_UI=OFF"} <= set(PLAIN.flags)
    assert {"llama-server", "ggml-rpc-server"} <= set(PLAIN.targets)
    assert PLAIN.archive == "llama_cpp_python-0.3.36.tar.gz"


def test_cards_are_built_for_where_their_compilers_are() -> None:
    assert not {"-DGGML_CUDA=ON", "-DGGML_VULKAN=ON"} & set(PLAIN.flags)
    cuda = llama_recipe(Toolchain("g++", nvcc=True)).flags
    assert "-DGGML_CUDA=ON" in cuda
    assert CUDA_NATIVE not in cuda
    assert CUDA_NATIVE in llama_recipe(Toolchain("g++", nvcc=True, nvidia_card=True)).flags
    assert "-DGGML_VULKAN=ON" in llama_recipe(Toolchain("g++", glslc=True)).flags


def test_different_builds_have_different_folders() -> None:
    others = [
        llama_recipe(Toolchain("g++", nvcc=True)),
        dataclasses.replace(PLAIN, version="0.3.37"),
        dataclasses.replace(PLAIN, sha256="0" * 64),
        dataclasses.replace(PLAIN, targets=("ggml",)),
    ]
    keys = {build_key(recipe, "linux-x86_64") for recipe in (PLAIN, *others)} | {build_key(PLAIN, "darwin-arm64")}
    assert len(keys) == 6
    assert build_key(PLAIN, "linux-x86_64") == build_key(llama_recipe(Toolchain("clang++")), "linux-x86_64")
    assert all("/" not in key for key in keys)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[1/200] Building CXX object a.o", 0),
        ("[100/200] Building", 50),
        ("[200/200] Linking", 100),
        ("[0/0] x", None),
        ("ninja: no work to do.", None),
        ("warning [3/4] inside", None),
    ],
)
def test_percent_is_ninjas(line: str, expected: int | None) -> None:
    assert percent(line) == expected


@pytest.mark.parametrize(("system", "says"), [("linux", "apt install g++"), ("darwin", "xcode-select"), ("x", "clang")])
def test_the_missing_compiler_is_named(system: str, says: str) -> None:
    assert says in missing_compiler(system)


@pytest.mark.parametrize(
    ("name", "expected"), [("a/b.c", True), ("/etc/passwd", False), ("a/../../b", False), ("..", False)]
)
def test_names_stay_inside(name: str, expected: bool) -> None:
    assert is_inside(name) is expected
