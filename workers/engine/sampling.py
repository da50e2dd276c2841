"""Sampling where a request is silent: pinned here, so that no build of llama.cpp and no model file decides it."""

from dataclasses import dataclass
from typing import Final

from infra.errors import InvalidRequest
from workers.types import ModelEntry

Number = int | float


@dataclass(frozen=True, slots=True)
class Knob:
    """One sampling parameter: its name in the wheel's parameters, llama-server's flag, and our default."""

    field: str
    flag: str
    default: Number | None
    """None: left to llama.cpp, where it is off."""
    whole: bool = False


KNOBS: Final[dict[str, Knob]] = {
    "temperature": Knob("temp", "--temp", 0.8),
    "top_k": Knob("top_k", "--top-k", 40, whole=True),
    "top_p": Knob("top_p", "--top-p", 0.95),
    "min_p": Knob("min_p", "--min-p", 0.05),
    "typical_p": Knob("typ_p", "--typical", 1.0),
    "repeat_penalty": Knob("penalty_repeat", "--repeat-penalty", 1.0),
    "repeat_last_n": Knob("penalty_last_n", "--repeat-last-n", 64, whole=True),
    "presence_penalty": Knob("penalty_present", "--presence-penalty", 0.0),
    "frequency_penalty": Knob("penalty_freq", "--frequency-penalty", 0.0),
    "xtc_probability": Knob("xtc_probability", "--xtc-probability", 0.0),
    "xtc_threshold": Knob("xtc_threshold", "--xtc-threshold", 0.1),
    "mirostat": Knob("mirostat", "--mirostat", 0, whole=True),
    "mirostat_tau": Knob("mirostat_tau", "--mirostat-ent", 5.0),
    "mirostat_eta": Knob("mirostat_eta", "--mirostat-lr", 0.1),
    "dynatemp_range": Knob("dynatemp_range", "--dynatemp-range", None),
    "dynatemp_exponent": Knob("dynatemp_exponent", "--dynatemp-exp", None),
    "dry_multiplier": Knob("dry_multiplier", "--dry-multiplier", None),
    "dry_base": Knob("dry_base", "--dry-base", None),
    "dry_allowed_length": Knob("dry_allowed_length", "--dry-allowed-length", None, whole=True),
    "dry_penalty_last_n": Knob("dry_penalty_last_n", "--dry-penalty-last-n", None, whole=True),
    "seed": Knob("seed", "--seed", None, whole=True),
}
"""By the name that requests use."""
MAX_TOKENS: Final = "max_tokens"
"""The one other key an entry may set: the longest answer where the request names none."""


def sampling(entry: ModelEntry) -> dict[str, Number]:
    """Our defaults under the entry's own, by the names that requests use (`KNOBS`, `MAX_TOKENS`).

    Raises:
        InvalidRequest: the entry names a parameter that we do not know, or gives no number for it.
    """
    values: dict[str, Number] = {name: knob.default for name, knob in KNOBS.items() if knob.default is not None}
    for name, value in entry.sampling.items():
        if name not in KNOBS and name != MAX_TOKENS:
            known = ", ".join([*KNOBS, MAX_TOKENS])
            raise InvalidRequest(f"model {entry.name}: unknown sampling parameter {name!r}; known: {known}", param=name)
        whole = name == MAX_TOKENS or KNOBS[name].whole
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            kind = "a whole number" if whole else "a number"
            raise InvalidRequest(f"model {entry.name}: sampling.{name} must be {kind}", param=name)
        assert isinstance(value, int | float)
        values[name] = value if whole else float(value)
    return values
