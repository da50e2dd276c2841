"""From a row somebody wrote to a model entry: the rules that hold wherever a row comes from.

A row never names a program, its arguments, an environment or a venv: `ModelEntry` has no such field and refuses
unknown ones. What a far service's key is stays inside: nothing here puts it into a message.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from infra.errors import Forbidden, InvalidRequest
from infra.settings import Settings
from infra.types import Json
from workers.folders.facts import FolderFacts
from workers.folders.files import walk
from workers.types import Capability, ModelEntry, ModelFormat
from workers.weights import WeightsFacts, capabilities_of

Source = Literal["file", "database", "package"]
SERVICE_INSTANCES = 256
"""Requests that a far service gets at once unless its row says otherwise: it has a queue of its own."""
HIDDEN_KEY = "***"
"""What is shown in place of a far service's key."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
_WANTED = "name a file of weights or a model's folder"
_SERVICE_CAPABILITIES = (Capability.CHAT, Capability.COMPLETIONS)


ReadWeights = Callable[[Path], WeightsFacts | FolderFacts]
"""`workers.folders.reading.read_model`: what a file or a folder is. Raises InvalidRequest for what cannot be used."""


class BadField(InvalidRequest):
    """A row that is no model entry; `param` names the field at fault."""


def entry_from_row(row: Mapping[str, object], source: Source, read_weights: ReadWeights | None = None) -> ModelEntry:
    """The entry that a row means; what it leaves out comes from the weights' header or from the kind of row.

    Raises:
        BadField: a field is missing, unknown or unusable. The message does not repeat values: one may be a secret.
        InvalidRequest: the weights cannot be read.
    """
    filled = _filled(row, read_weights)
    try:
        entry = ModelEntry.model_validate({**filled, "source": source})
    except ValidationError as error:
        raise _bad_field(error) from None  # the original repeats the row, with its api_key
    for alias in entry.aliases:
        if not _NAME.fullmatch(alias):
            raise BadField("field 'aliases': an alias has the characters of a model's name", param="aliases")
    return entry


def _filled(row: Mapping[str, object], read_weights: ReadWeights | None) -> dict[str, object]:
    if "source" in row:
        raise BadField("field 'source' is not yours to set: leave it out", param="source")
    if row.get("api_key") == HIDDEN_KEY:
        raise BadField(f"field 'api_key': {HIDDEN_KEY} only stands for the key in lists: give the key", param="api_key")
    filled = dict(row)
    if isinstance(url := filled.get("service_url"), str):
        filled["service_url"] = normalise_service_url(url)
        filled.setdefault("format", ModelFormat.SERVICE)
        filled.setdefault("capabilities", _SERVICE_CAPABILITIES)
        filled.setdefault("max_instances", SERVICE_INSTANCES)
    elif isinstance(path := filled.get("path"), str | Path):
        filled["path"] = path = Path(path)
        if read_weights is not None and not {"format", "capabilities", "weights_bytes"} <= filled.keys():
            facts = read_weights(path)
            filled = described(facts) | filled | {"path": facts.path}
        if filled.get("format") == ModelFormat.DIFFUSERS:
            filled.setdefault("max_instances", 1)
    return filled


def described(facts: WeightsFacts | FolderFacts) -> dict[str, object]:
    """The fields of an entry that come from the weights themselves.

    The trained context of a GGUF is none of them: an entry without one takes the smaller of it and a sane default when
    it is loaded.

    Raises:
        InvalidRequest: a model of a kind that cannot be served.
    """
    if isinstance(facts, FolderFacts):
        return _of_folder(facts)
    capabilities = capabilities_of(facts)
    fields: dict[str, object] = {
        "format": facts.format,
        "capabilities": capabilities,
        "architecture": facts.architecture,
        "pooling": facts.pooling,
        "weights_bytes": facts.total_bytes,
    }
    if Capability.EMBEDDINGS in capabilities:
        fields["embedding_dimensions"] = facts.embedding_dimensions
    if Capability.RERANK in capabilities:
        fields["rerank_method"] = "cross_encoder"
    return fields


def _of_folder(facts: FolderFacts) -> dict[str, object]:
    fields: dict[str, object] = {
        "format": facts.format,
        "capabilities": facts.capabilities,
        "architecture": facts.architecture,
        "weights_bytes": facts.weights_bytes,
        "context_tokens": facts.context_tokens,
        "embedding_dimensions": facts.embedding_dimensions,
        "pooling": facts.pooling,
    }
    if Capability.RERANK in facts.capabilities:
        fields["rerank_method"] = "cross_encoder"
    return fields


def normalise_service_url(url: str) -> str:
    """A far service's address without a trailing slash and without `/v1`.

    Raises:
        BadField: not http or https, no host, a name or password in it, a query, or characters no URL has.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise BadField("field 'service_url': this is not a URL", param="service_url") from None
    if any(character <= " " or character == "\x7f" for character in url) or "\\" in url:
        raise BadField("field 'service_url': spaces and control characters have no place in a URL", param="service_url")
    if parts.scheme not in ("http", "https") or not host:
        raise BadField("field 'service_url': give http:// or https:// and a host", param="service_url")
    if "@" in parts.netloc:
        raise BadField(
            "field 'service_url': a URL shows in logs, so it carries no name and password; use api_key",
            param="service_url",
        )
    if "?" in url or "#" in url:
        raise BadField("field 'service_url': leave out the query and the fragment", param="service_url")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def checked_path(path: str | Path, settings: Settings, *, trusted: bool) -> Path:
    """The weights' file or folder that `path` means, links followed.

    `trusted` is for the machine's owner at the command line, who may name any. Anybody else names one below
    `models.roots` or `<home>/models`, and learns nothing about what lies elsewhere, by a link in a folder neither.

    Raises:
        Forbidden: not below those folders.
        InvalidRequest: no such file or folder.
    """
    try:
        resolved = (Path(path).expanduser() if trusted else Path(path)).resolve()
        if not trusted:
            _require_below_roots(Path(path), resolved, settings)
            for file in walk(resolved):
                _require_below_roots(file, file.resolve(), settings)
        if resolved.is_file() or resolved.is_dir():
            return resolved
    except (ValueError, OSError, RuntimeError):
        raise InvalidRequest(f"this path cannot be used: {_WANTED}", param="path") from None
    raise InvalidRequest(f"there is no file or folder {str(path)!r}: {_WANTED}", param="path")


def stored(entry: ModelEntry) -> dict[str, Json]:
    """The entry as it stands in the database: only what was set, and the far service's key in clear."""
    document: dict[str, Json] = entry.model_dump(mode="json", exclude_defaults=True, exclude={"api_key", "source"})
    if entry.api_key is not None:
        document["api_key"] = entry.api_key.get_secret_value()
    return document


def shown(entry: ModelEntry) -> dict[str, Json]:
    """The entry as lists show it: the far service's key is `***`."""
    document: dict[str, Json] = entry.model_dump(mode="json", exclude_none=True, exclude={"api_key"})
    if entry.api_key is not None:
        document["api_key"] = HIDDEN_KEY
    return document


def _require_below_roots(path: Path, resolved: Path, settings: Settings) -> None:
    roots = [root.expanduser().resolve() for root in (*settings.models.roots, settings.at("models"))]
    if not path.is_absolute() or not any(resolved.is_relative_to(root) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise Forbidden(f"a model's path is absolute and lies below one of: {allowed}", param="path")


def _bad_field(error: ValidationError) -> BadField:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    words = "this field is unknown" if first["type"] == "extra_forbidden" else first["msg"]
    return BadField(f"field {field!r}: {words}" if field else words, param=field or None)
