"""What a run has used, and the labels of its flow run that keep it: they outlive every process of this install."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from infra.records import RunRecord
from infra.types import Json

_PREFIX: Final = "coderai."
_TOKENS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens")


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Of all executions of a run: tokens as engines counted them, and what else was used, as in `infra.usage.Usage`."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    units: float = 0.0

    def __add__(self, other: "RunUsage") -> "RunUsage":
        return RunUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.units + other.units,
        )


def usage_of(record: RunRecord) -> RunUsage | None:
    """What a record tells; None where no engine named any token, and nothing else was used."""
    if record.prompt_tokens is None and record.completion_tokens is None and not record.units:
        return None
    return RunUsage(record.prompt_tokens or 0, record.completion_tokens or 0, record.cached_tokens or 0, record.units)


def usage_labels(usage: RunUsage | None) -> dict[str, int | float]:
    """The labels that keep it; none where nothing is known."""
    if usage is None:
        return {}
    return {f"{_PREFIX}{name}": getattr(usage, name) for name in (*_TOKENS, "units")}


def labelled_usage(labels: Mapping[str, Json] | None) -> RunUsage | None:
    """What labels keep; None where they keep none. Anybody may write labels: what is no count is 0."""
    kept = {name: (labels or {}).get(f"{_PREFIX}{name}") for name in (*_TOKENS, "units")}
    if all(value is None for value in kept.values()):
        return None
    numbers = {name: value if isinstance(value, int | float) and value >= 0 else 0 for name, value in kept.items()}
    return RunUsage(**{name: int(numbers[name]) for name in _TOKENS}, units=float(numbers["units"]))
