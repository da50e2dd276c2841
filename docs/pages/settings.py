"""The configuration reference, from the fields of `infra/settings.py` and of a model's entry."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NewType, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from docs.pages import NOTICE, table
from infra.settings import Section, Settings
from workers.types import ModelEntry

INTRODUCTION = """# Configuration

What is fixed while the process runs is read once, at start, from two places; a value of the environment wins over the
file, and the file over the default:

1. the environment: `CODERAI_<SECTION>__<KEY>`, for example `CODERAI_SERVER__PORT=9000`; a list or table is JSON;
2. the file `coderai.toml` in the install's directory (`~/.coderai`), or the one that `CODERAI_CONFIG` names.

A key of the file that is unknown, or a value that cannot be used, stops the start with a sentence that names it. So
does a variable with the name of a section and of none of its keys; other unknown variables are left alone.
What changes while the process runs (models, keys) is kept in the database and changed with the `coderai` command.

"""
LIMITS = {Ge: ("ge", "at least"), Gt: ("gt", "over"), Le: ("le", "at most"), Lt: ("lt", "under")}
WORDS: dict[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    SecretStr: "text, secret",
    type(None): "none",
}


def page() -> str:
    """The whole page as Markdown."""
    parts = [NOTICE.format(source="infra/settings.py and workers/types.py"), INTRODUCTION, "## Top level\n\n"]
    scalars = {name: field for name, field in Settings.model_fields.items() if not _section(field)}
    parts.append(_keys(scalars, "CODERAI_"))
    for name, field in Settings.model_fields.items():
        if section := _section(field):
            parts.append(f"\n## `[{name}]`\n\n{inspect.getdoc(section)}\n\n")
            parts.append(_keys(section.model_fields, f"CODERAI_{name.upper()}__"))
            parts += _nested(name, section)
    parts.append("\n## `[[model]]`\n\n" + _model_entry())
    return "".join(parts)


def _section(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _nested(name: str, section: type[Section]) -> Iterator[str]:
    """Tables of a list within a section, such as `[[cards.engine_specs]]`."""
    for key, field in section.model_fields.items():
        for item in get_args(field.annotation):
            if isinstance(item, type) and issubclass(item, BaseModel):
                yield f"\n### `[[{name}.{key}]]`\n\n{inspect.getdoc(item)}\n\n"
                yield _keys(item.model_fields, None)


def _keys(fields: dict[str, FieldInfo], prefix: str | None) -> str:
    head = ("key", "value", "default", "meaning")
    rows = [
        (f"`{name}`", _value(field), "required" if field.is_required() else _default(field), field.description or "")
        for name, field in fields.items()
    ]
    if prefix is None:
        return table(head, rows)
    return table((*head, "environment"), [(*row, f"`{prefix}{row[0].strip('`').upper()}`") for row in rows])


def _model_entry() -> str:
    """What `[[model]]` takes: the entry's fields, their meaning read from the docstrings below them."""
    said = _attribute_docstrings(ModelEntry)
    rows = [
        (f"`{name}`", _value(field), "required" if field.is_required() else _default(field), said.get(name, ""))
        for name, field in ModelEntry.model_fields.items()
        if name != "source"
    ]
    intro = "One table a model; it is read-only elsewhere. Every field that a model's entry has:\n\n"
    return intro + table(("key", "value", "default", "meaning"), rows)


def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    said: dict[str, str] = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            said[ast.unparse(field.target)] = str(text.value.value)
    return said


def _value(field: FieldInfo) -> str:
    limits = [
        f"{word} {getattr(limit, attribute):g}"
        for limit in field.metadata
        for kind, (attribute, word) in LIMITS.items()
        if isinstance(limit, kind)
    ]
    return ", ".join([_words(field.annotation), *limits])


def _words(kind: Any) -> str:
    """A type in words: `tuple[Path, ...]` is a list of paths."""
    if isinstance(kind, NewType):
        return _words(kind.__supertype__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(f"`{item.value}`" for item in kind)
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_words(item) for item in arguments)
    if get_origin(kind) is tuple:
        return f"list of {_words(arguments[0])}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "table"
    return "table" if get_origin(kind) is dict else WORDS.get(kind, str(kind))


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if value in ("", (), {}):
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
