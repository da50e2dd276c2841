"""Reading the `models.json` of the older CoderAI: what maps becomes models, what does not is named.

Nothing that names a program, its arguments, an environment or a venv is ever taken, whatever the file says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from pydantic import ValidationError

from infra.errors import CoderAIError, Conflict, InvalidRequest
from infra.hub import is_hub_id
from infra.types import Frozen
from workers.catalogue_rows import ModelRows
from workers.entries import ReadWeights
from workers.types import Capability, Distribute, ModelEntry

MOST_BYTES = 16 << 20
"""The largest `models.json` that is read."""

CATEGORIES: Mapping[str, tuple[Capability, ...]] = {
    "text_models": (Capability.CHAT, Capability.COMPLETIONS),
    "gguf_models": (Capability.CHAT, Capability.COMPLETIONS),
    "embedding_models": (Capability.EMBEDDINGS,),
}
"""The categories that map, with what a far model of theirs does when its entry does not say."""

LOCAL = ("image_models", "video_models", "audio_models", "tts_models")
"""The categories of kinds that are served here, and not through a far service."""

UNSERVED = ("audio_gen_models", "vision_models", "spatial_models")
"""The categories of kinds that this version does not serve."""

_CAPABILITIES = {
    "chat": Capability.CHAT,
    "text": Capability.CHAT,
    "completion": Capability.COMPLETIONS,
    "completions": Capability.COMPLETIONS,
    "embedding": Capability.EMBEDDINGS,
    "embeddings": Capability.EMBEDDINGS,
    "rerank": Capability.RERANK,
}
_SAME = ("served_model", "max_instances", "queue_max_waiting", "keep_resident")
_READ = frozenset(
    (*_SAME, "path", "id", "name", "alias", "service_url", "api_key", "service_token", "capabilities", "distribute")
)
_WHY = {
    "enabled": "only whether it is false matters",
    "engine": "engines have other names here: pin the model to a pool of `coderai engines list` if you need to",
    "runpod": "pods are not part of models here",
    "host": "hosts are not part of models here",
}
_PROGRAMS = frozenset(
    (
        "command",
        "cmd",
        "argv",
        "args",
        "env",
        "environment",
        "venv",
        "python",
        "bin",
        "executable",
        "node_path",
        "node_paths",
    )
)


class NotTaken(Frozen):
    """A part of the file that was left behind. `key` is None where it is the whole entry."""

    category: str
    entry: str
    key: str | None
    reason: str


class ImportReport(Frozen):
    """What an import did, or would do: the names of the models it added, and everything it did not take."""

    added: tuple[str, ...]
    not_taken: tuple[NotTaken, ...]

    def lines(self) -> tuple[str, ...]:
        """The report as text, a line for each model and for each thing left behind; control characters are `?`."""
        left = (
            f"not taken: {one.category}{f', {one.entry}' if one.entry else ''}{f', {one.key}' if one.key else ''}: "
            f"{one.reason}"
            for one in self.not_taken
        )
        text = (*(f"added: {name}" for name in self.added), *left)
        return tuple("".join(one if one.isprintable() else "?" for one in line) for line in text)


@dataclass(frozen=True, slots=True)
class _Found:
    """One entry of the file, with the words to call it by."""

    category: str
    label: str
    fields: Mapping[str, object]

    def without(self, reason: str, key: str | None = None) -> NotTaken:
        return NotTaken(category=self.category, entry=self.label, key=key, reason=reason)


def import_models(
    content: bytes | str, rows: ModelRows, read_weights: ReadWeights, *, trusted: bool, dry_run: bool = False
) -> ImportReport:
    """Add the models of a `models.json` that map, all in one step; models that are there already stay as they are.

    `dry_run` only reports. `trusted` is for the machine's owner, whose paths may lie anywhere (`ModelRows`).

    Raises:
        InvalidRequest: it is no such file; nothing was changed.
        Conflict: another process took one of the names just now; nothing was changed.
    """
    taken: list[ModelEntry] = []
    left: list[NotTaken] = []
    for found in _parsed(content, left):
        try:
            entry = rows.checked(_row(found, left), read_weights, trusted=trusted)
            rows.require_free(entry, beside=taken)
        except Conflict as error:
            left.append(found.without(error.message))
        except CoderAIError as error:
            left.append(found.without(error.message, error.param if error.param in _READ else None))
        else:
            taken.append(entry)
    if not dry_run:
        rows.add_all(taken)
    return ImportReport(added=tuple(entry.name for entry in taken), not_taken=tuple(left))


def _parsed(content: bytes | str, left: list[NotTaken]) -> list[_Found]:
    """Every entry of a category that maps. The whole file is looked through before anything is done with it."""
    if len(content) > MOST_BYTES:
        raise InvalidRequest(f"a models.json has at most {MOST_BYTES} bytes, this one has {len(content)}", param="file")
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"this is no JSON: {error}", param="file") from None
    if not isinstance(document, dict):
        raise InvalidRequest("a models.json is one JSON object with a list for each category", param="file")
    found: list[_Found] = []
    for category, entries in document.items():
        if category not in (*CATEGORIES, *LOCAL, *UNSERVED):
            left.append(NotTaken(category=category, entry="", key=None, reason="this is no category of models"))
            continue
        found += _entries_of(category, entries, left)
    return found


def _entries_of(category: str, entries: object, left: list[NotTaken]) -> list[_Found]:
    if not isinstance(entries, list):
        raise InvalidRequest(f"{category} is a list of models, not {type(entries).__name__}", param=category)
    found = []
    for number, entry in enumerate(entries, start=1):
        fields = {"path": entry} if isinstance(entry, str) else entry
        if not isinstance(fields, dict):
            raise InvalidRequest(f"{category}, model {number}: it is an object or a path", param=category)
        one = _Found(category, _label(fields, number), fields)
        if category in UNSERVED:
            left.append(one.without(f"models of this kind ({category}) are not served by this version"))
        elif category in LOCAL and fields.get("service_url"):
            left.append(one.without(f"models of this kind ({category}) are served here, not by a far service"))
        elif fields.get("enabled") is False:
            left.append(one.without("it is switched off (enabled is false)"))
        else:
            found.append(one)
    return found


def _row(found: _Found, left: list[NotTaken]) -> dict[str, object]:
    """The row that an entry means, every key that has no place in it named in `left`.

    Raises:
        InvalidRequest: the entry has nothing to be served from.
    """
    fields = found.fields
    row: dict[str, object] = {"name": _name(found), **{key: fields[key] for key in _SAME if key in fields}}
    if isinstance(alias := fields.get("alias"), str) and alias and alias != row["name"]:
        row["aliases"] = (alias,)
    if "distribute" in fields and (distribute := _distribute(found, left)):
        row["distribute"] = distribute
    for key in fields:
        if key not in _READ:
            left.append(found.without(_why_not(key), key))
    if fields.get("service_url"):
        return row | _service(found, left)
    left.extend(
        found.without("only a model with a service_url has one", key)
        for key in ("api_key", "service_token", "served_model")
        if fields.get(key)
    )
    row.pop("served_model", None)
    return row | _weights(found, left)


def _service(found: _Found, left: list[NotTaken]) -> dict[str, object]:
    fields = found.fields
    row: dict[str, object] = {"service_url": fields["service_url"]}
    if key := fields.get("api_key") or fields.get("service_token"):
        row["api_key"] = key
    if fields.get("path"):
        left.append(found.without("the model is served by its service_url, so its path is not needed", "path"))
    row["capabilities"] = _capabilities(found, left)
    return row


def _weights(found: _Found, left: list[NotTaken]) -> dict[str, object]:
    path = found.fields.get("path") or found.fields.get("id")
    if not isinstance(path, str) or not path:
        raise InvalidRequest("it has neither a path nor a service_url")
    if is_hub_id(path) and not path.endswith(".gguf"):
        raise InvalidRequest(f"it is a repository of the hub: download it with `coderai models add {path}`")
    if path.startswith(("http://", "https://")):
        raise InvalidRequest("it is to be downloaded: use `coderai models add URL`")
    if "capabilities" in found.fields:
        left.append(found.without("what a local model does is read from its weights", "capabilities"))
    return {"path": path}


def _distribute(found: _Found, left: list[NotTaken]) -> dict[str, object] | None:
    """How requests are spread; `nodes` may be a list or names with commas between them, blank means every engine."""
    given = found.fields["distribute"]
    if not isinstance(given, dict):
        left.append(found.without("it is an object such as {enabled, nodes, max_parts, min_items}", "distribute"))
        return None
    row: dict[str, object] = {str(key): value for key, value in given.items() if value not in (None, "")}
    if isinstance(nodes := row.get("nodes"), str):
        row["nodes"] = [name.strip() for name in nodes.split(",") if name.strip()]
    for key in sorted(row.keys() - Distribute.model_fields.keys()):
        left.append(found.without("it has no counterpart here", f"distribute.{key[:40]}"))
        del row[key]
    try:
        Distribute.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in ("distribute", *first["loc"]))
        left.append(found.without(f"nothing of distribute is taken: {first['msg']}", key))
        return None
    return row


def _capabilities(found: _Found, left: list[NotTaken]) -> tuple[Capability, ...]:
    """What a far model does: what its entry says, as far as we know the words, else what its category means."""
    given = found.fields.get("capabilities")
    words = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    known = [_CAPABILITIES[word] for word in words if isinstance(word, str) and word in _CAPABILITIES]
    unknown = [str(word)[:40] for word in words if not (isinstance(word, str) and word in _CAPABILITIES)]
    if unknown:
        left.append(found.without(f"this version does not serve {', '.join(unknown)}", "capabilities"))
    if Capability.CHAT in known and Capability.COMPLETIONS not in known and "chat" not in words:
        known.append(Capability.COMPLETIONS)
    return tuple(dict.fromkeys(known)) or CATEGORIES[found.category]


def _name(found: _Found) -> str:
    """The entry's name, else its id, else its file's name without the ending."""
    for key in ("name", "id", "alias"):
        if isinstance(value := found.fields.get(key), str) and value:
            return value
    path = str(found.fields.get("path") or "")
    name = path.rstrip("/").rpartition("/")[2]
    return name.removesuffix(".gguf")


def _label(fields: Mapping[str, object], number: int) -> str:
    named = (fields.get(key) for key in ("name", "id", "alias", "path"))
    return next((value for value in named if isinstance(value, str) and value), f"number {number}")


def _why_not(key: str) -> str:
    if key in _PROGRAMS:
        return "it names a program or its surroundings: only the machine's own coderai.toml may"
    return _WHY.get(key, "it has no counterpart here")
