"""Habits that neither ruff nor mypy knows, read from the syntax tree. What each is for: `test_habits.py`."""

import ast
import importlib
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from io import StringIO

import pytest
from pydantic import BaseModel
from pydantic_settings import BaseSettings

from infra.types import FarShape
from tests.repo.tree import PACKAGES, Module, modules

CODE_LINES = 300
TEST_LINES = 400
FUNCTION_LINES = 40
PROTOCOL_METHODS = 5

QUANTITIES = frozenset({"size", "timeout", "interval", "memory", "duration"})
UNITS = frozenset({"bytes", "kib", "mib", "gib", "mb", "s", "ms", "us", "ns", "tokens", "c", "pct", "ratio", "chars"})
BLANKET = re.compile(r"#\s*(mypy:|flake8:|ruff:\s*noqa|type:\s*ignore(?!\[))")
PROTOCOL = re.compile(r"(typing\.)?Protocol(\[.*\])?")
"""typing's own base: a network protocol's class (asyncio's, uvicorn's) has the methods that its base calls."""
NUMBERS = re.compile(r"\b(int|float)\b")

METHODS = "".join(f" def m{n}(self): ...\n" for n in range(PROTOCOL_METHODS + 1))

Function = ast.FunctionDef | ast.AsyncFunctionDef
Finding = tuple[int, str]
"""A line, and what is wrong there."""
Detector = Callable[[Module], Iterator[Finding]]


def test_an_id_is_never_plain_text() -> None:
    """Ids that are all `str` get swapped, and nobody notices: give each a NewType (rows of tables excepted).

    SQLModel maps a column from the annotation and cannot read a NewType.
    """
    _none_in(modules(), _plain_ids)


def test_a_quantity_says_its_unit() -> None:
    """`timeout` may be seconds or milliseconds; `timeout_s` may not."""
    _none_in(modules(), _unitless)


def test_files_are_short() -> None:
    """A long file holds two things: split it before it is born big."""
    long = [
        f"{module.path}: {count} lines, {limit} are allowed"
        for limit, folders in ((CODE_LINES, (*PACKAGES, "docs", "benchmarks")), (TEST_LINES, ("tests",)))
        for module in modules(*folders)
        if (count := len(module.text.splitlines())) > limit
    ]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    """Without its docstring, which may take the room it needs."""
    _none_in(modules(), _long_functions)


def test_protocols_are_small() -> None:
    """A boundary with many methods has many reasons to change, and fakes that lie."""
    _none_in(modules(), _wide_protocols)


def test_http_errors_are_made_in_one_place() -> None:
    """What is raised is what happened; `api/errors.py` alone says which status that is."""
    _none_in((module for module in modules() if module.path != "api/errors.py"), _http_errors)


def test_no_ignore_is_a_blanket() -> None:
    """One line, one code: ruff (PGH) sees the lines, this the whole-file forms that it lets pass."""
    _none_in(modules(*PACKAGES, "docs", "tests", "benchmarks"), _blanket_ignores)


def test_value_objects_are_frozen_and_strict() -> None:
    """Every pydantic model is frozen and forbids fields that it does not know (rows of tables excepted).

    Two kinds pass over such fields: `FarShape`, what we read of another program's answer or file, which may grow and
    must not break us by it; and the settings' root, whose environment is everybody's. What extends a model of Prefect's
    follows Prefect.
    """
    for module in modules():
        if not module.path.startswith("infra/migrations/"):  # Alembic runs those, nobody imports them
            importlib.import_module(module.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    loose = [
        f"{model.__module__}.{model.__name__}"
        for model in _models(BaseModel)
        if not _is_strict(model) and not _is_prefect_s(model)
    ]
    assert not loose, "\n".join(loose)


@pytest.mark.parametrize(
    ("detector", "bad", "good"),
    [
        ("_plain_ids", "def run(key_id: str): ...", "def run(key_id: KeyId): ..."),
        (
            "_plain_ids",
            "class A:\n    model_id: str | None = None",
            "class A(SQLModel, table=True):\n    model_id: str",
        ),
        ("_unitless", "class A:\n    timeout: float = 3", "class A:\n    timeout_s: float = 3\n    timeout: timedelta"),
        ("_unitless", "def read(chunk_size: int): ...", "def read(chunk_size_bytes: int): ..."),
        ("_long_functions", "def f():\n" + "    f()\n" * 41, "def f():\n    '''a" + "\nb" * 50 + "'''\n    f()"),
        ("_wide_protocols", f"class P(Protocol):\n{METHODS}", f"class P(HttpToolsProtocol):\n{METHODS}"),
        ("_wide_protocols", f"class P(typing.Protocol[T]):\n{METHODS}", f"class P(asyncio.Protocol):\n{METHODS}"),
        ("_http_errors", "raise HTTPException(400)", "raise InvalidRequest('x')"),
        ("_blanket_ignores", "# ruff: noqa", "x = 1  # noqa: E501"),
        ("_blanket_ignores", "x = y  # type: ignore", "x = y  # type: ignore[misc]"),
    ],
)
def test_the_detectors_detect(detector: str, bad: str, good: str) -> None:
    detect: Detector = globals()[detector]
    assert list(detect(Module("bad.py", bad, ast.parse(bad))))
    assert not list(detect(Module("good.py", good, ast.parse(good))))


def _none_in(where: Iterable[Module], detect: Detector) -> None:
    found = [f"{module.path}:{line}: {what}" for module in where for line, what in detect(module)]
    assert not found, "\n".join(found)


def _http_errors(module: Module) -> Iterator[Finding]:
    for node in module.walk(ast.Name):
        if isinstance(node, ast.Name) and node.id == "HTTPException":
            yield node.lineno, "raise what happened instead of HTTPException"


def _blanket_ignores(module: Module) -> Iterator[Finding]:
    for token in tokenize.generate_tokens(StringIO(module.text).readline):
        if token.type == tokenize.COMMENT and BLANKET.search(token.string):
            yield token.start[0], "an ignore without a code, or for a whole file"


def _is_prefect_s(model: type[BaseModel]) -> bool:
    return any(base.__module__.partition(".")[0] == "prefect" for base in model.__mro__)


def _is_strict(model: type[BaseModel]) -> bool:
    config = model.model_config
    if config.get("table"):
        return True
    extra = "ignore" if issubclass(model, FarShape | BaseSettings) else "forbid"
    return bool(config.get("frozen")) and config.get("extra") == extra


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        if model.__module__.split(".")[0] in {"api", "flows", "tasks", "workers", "infra"}:
            yield model
        yield from _models(model)


def _plain_ids(module: Module) -> Iterator[Finding]:
    in_tables = {id(field) for table in _tables(module) for field in table.body}
    for node, name, annotation in _annotated(module):
        if name.endswith("_id") and re.search(r"\bstr\b", annotation) and id(node) not in in_tables:
            yield node.lineno, f"{name}: {annotation}"


def _tables(module: Module) -> Iterator[ast.ClassDef]:
    for node in module.walk(ast.ClassDef):
        if isinstance(node, ast.ClassDef) and any(keyword.arg == "table" for keyword in node.keywords):
            yield node


def _unitless(module: Module) -> Iterator[Finding]:
    for node, name, annotation in _annotated(module):
        words = name.lower().split("_")
        if QUANTITIES & set(words) and words[-1] not in UNITS and NUMBERS.search(annotation):
            yield node.lineno, f"{name}: {annotation}"


def _annotated(module: Module) -> Iterator[tuple[ast.AnnAssign | ast.arg, str, str]]:
    """Every annotated name, attribute, field and parameter, with its annotation as text."""
    for node in module.walk(ast.AnnAssign, ast.arg):
        if isinstance(node, ast.arg) and node.annotation is not None:
            yield node, node.arg, ast.unparse(node.annotation)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name | ast.Attribute):
            target = node.target
            yield node, target.id if isinstance(target, ast.Name) else target.attr, ast.unparse(node.annotation)


def _long_functions(module: Module) -> Iterator[Finding]:
    for node in module.walk(ast.FunctionDef, ast.AsyncFunctionDef):
        if isinstance(node, Function) and (count := _lines(node)) > FUNCTION_LINES:
            yield node.lineno, f"{node.name} has {count} lines, {FUNCTION_LINES} are allowed"


def _lines(function: Function) -> int:
    first = function.body[0]
    said = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if said else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def _wide_protocols(module: Module) -> Iterator[Finding]:
    for node in module.walk(ast.ClassDef):
        if isinstance(node, ast.ClassDef) and any(PROTOCOL.fullmatch(ast.unparse(base)) for base in node.bases):
            count = sum(isinstance(item, Function) for item in node.body)
            if count > PROTOCOL_METHODS:
                yield node.lineno, f"{node.name} has {count} methods, {PROTOCOL_METHODS} are allowed"
