"""Limits on the JSON schemas that an answer must fit: a schema becomes a grammar that is followed token by token.

The sizes are OpenAI's own for structured outputs (1000 values of enumerations, 5000 properties), with more depth
allowed. The last check is ours: alternatives that lead back to the whole and begin alike make the number of open
readings double with every level, and llama.cpp follows all of them (measured: half a minute for fourteen levels, with
every other request of the engine waiting).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from infra.errors import InvalidRequest
from infra.types import Json

MAX_DEPTH: Final = 64
MAX_NODES: Final = 20_000
MAX_ENUM_VALUES: Final = 1000
MAX_PROPERTIES: Final = 5000
MAX_STEPS: Final = 100_000
"""Most parts looked at while references are followed."""
MAX_REPEATS: Final = 100_000
"""Largest minLength, maxLength, minItems, maxItems."""

_UNIONS: Final = ("anyOf", "oneOf")
_REPEATS: Final = ("minLength", "maxLength", "minItems", "maxItems")


def check_form(schema: Json, param: str) -> None:
    """Refuse a schema that is too large to follow, or explosive. None passes.

    Raises:
        InvalidRequest: with the limit that is exceeded.
    """
    values = properties = 0
    recursive = False
    for count, (node, depth) in enumerate(_walk(schema)):
        if depth > MAX_DEPTH:
            raise InvalidRequest(f"'{param}' is nested deeper than {MAX_DEPTH} levels: flatten it", param=param)
        if count > MAX_NODES:
            raise InvalidRequest(f"'{param}' has more than {MAX_NODES} parts: make it smaller", param=param)
        if isinstance(node, Mapping):
            values += _size(node.get("enum"))
            properties += _size(node.get("properties"))
            recursive = recursive or "$ref" in node
            _check_repeats(node, param)
    _check_count(values, MAX_ENUM_VALUES, "values in 'enum'", param)
    _check_count(properties, MAX_PROPERTIES, "properties", param)
    if recursive and isinstance(schema, Mapping):
        _check_explosive(schema, param)


def _check_count(count: int, limit: int, what: str, param: str) -> None:
    if count > limit:
        raise InvalidRequest(f"'{param}' has {count} {what}, at most {limit} are followed", param=param)


def _size(value: Json) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _walk(schema: Json) -> Iterator[tuple[Json, int]]:
    """Every value in a schema with its depth, without recursion of our own."""
    waiting: list[tuple[Json, int]] = [(schema, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        if isinstance(node, dict):
            waiting.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list):
            waiting.extend((child, depth + 1) for child in node)


def _check_repeats(node: Mapping[str, Json], param: str) -> None:
    for key in _REPEATS:
        value = node.get(key)
        if isinstance(value, int | float) and value > MAX_REPEATS:
            raise InvalidRequest(f"'{param}' has {key} {value}, at most {MAX_REPEATS} is followed", param=param)


def _check_explosive(root: Mapping[str, Json], param: str) -> None:
    search = _Search(root, param)
    for node, _ in _walk(dict(root)):
        if not isinstance(node, dict):
            continue
        for key in _UNIONS:
            alike: dict[str, int] = {}
            branches = node.get(key)
            for branch in branches if isinstance(branches, list) else ():
                shape = _resolved(branch, root)
                if shape is not None and search.leads_back(shape, node):
                    begin = _beginning(shape)
                    alike[begin] = alike.get(begin, 0) + 1
            if any(count > 1 for count in alike.values()):
                raise InvalidRequest(
                    f"'{param}': two alternatives of '{key}' begin alike and both lead back to it; let the first "
                    "property of each be a constant that tells them apart",
                    param=param,
                )


class _Search:
    """Follows references from one part of a schema to another, within a budget: schemas come from strangers."""

    def __init__(self, root: Mapping[str, Json], param: str) -> None:
        self._root = root
        self._param = param
        self._left = MAX_STEPS

    def leads_back(self, start: dict[str, Json], target: dict[str, Json]) -> bool:
        """Whether `target` can be reached from `start`.

        Raises:
            InvalidRequest: the budget is spent.
        """
        waiting: list[Json] = [start]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node is target:
                return True
            if not isinstance(node, dict | list) or id(node) in seen:
                continue
            seen.add(id(node))
            self._left -= 1
            if self._left < 0:
                raise InvalidRequest(
                    f"the alternatives and references of '{self._param}' are too intertwined to check: simplify it",
                    param=self._param,
                )
            waiting.extend(node.values() if isinstance(node, dict) else node)
            if isinstance(node, dict) and "$ref" in node:
                waiting.append(_resolved(node, self._root))
        return False


def _beginning(shape: Mapping[str, Json]) -> str:
    """How the text of an alternative begins."""
    properties = shape.get("properties")
    if not isinstance(properties, dict) or not properties:
        return str(shape.get("type"))
    name, first = next(iter(properties.items()))
    told = first.get("const", first.get("enum")) if isinstance(first, dict) else None
    return f"{name}={told!r}"


def _resolved(branch: Json, root: Mapping[str, Json]) -> dict[str, Json] | None:
    """The branch itself, or what its `$ref` into the same document points at."""
    for _ in range(MAX_DEPTH):
        if not isinstance(branch, dict):
            return None
        reference = branch.get("$ref")
        if not isinstance(reference, str):
            return branch
        branch = dict(root)
        for part in reference.removeprefix("#").split("/")[1:]:
            branch = branch.get(part) if isinstance(branch, dict) else None
    return None
