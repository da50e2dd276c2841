"""The repository as data: its files, and its code parsed once. Git is not asked: what is committed is no matter."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "flows", "tasks", "workers", "infra")
FOLDERS = (*PACKAGES, "docs", "tests", "benchmarks", ".ci")
GENERATED = ("infra/migrations/versions/",)
"""Code that a tool wrote: no habit of ours to ask of it."""
TEXT = frozenset({"", ".md", ".py", ".toml", ".txt", ".yaml", ".yml", ".json", ".ini", ".mako", ".html", ".css", ".js"})


@dataclass(frozen=True)
class Module:
    """One Python file: its path from the root, its text, its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    def walk(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Every node of one of `kinds`."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))


@cache
def files() -> tuple[str, ...]:
    """Every text file that belongs to the repository, as a path from its root."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    names = (path.relative_to(ROOT) for path in found if path.suffix in TEXT)
    return tuple(sorted(name.as_posix() for name in names if "__pycache__" not in name.parts))


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """The Python files below `folders` (default: the five packages), generated ones left out."""
    tops = folders or PACKAGES
    wanted = (name for name in files() if name.endswith(".py") and name.split("/")[0] in tops)
    return tuple(_parse(name) for name in wanted if not name.startswith(GENERATED))


def read(name: str) -> str:
    """The text of a file named from the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def _parse(name: str) -> Module:
    text = read(name)
    return Module(name, text, ast.parse(text, name))
