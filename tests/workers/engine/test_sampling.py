"""Sampling defaults: ours, the entry's over them, and nothing else."""

from pathlib import Path

import pytest
import xllamacpp

from infra.errors import InvalidRequest
from infra.types import Json, ModelName
from workers.engine.sampling import KNOBS, sampling
from workers.types import Capability, ModelEntry, ModelFormat


def entry(**values: Json) -> ModelEntry:
    return ModelEntry(
        name=ModelName("tiny"),
        format=ModelFormat.GGUF,
        capabilities=(Capability.CHAT,),
        path=Path("/m/tiny.gguf"),
        sampling=values,
    )


def test_defaults_are_llama_cpps_documented_ones() -> None:
    values = sampling(entry())
    assert (values["temperature"], values["top_p"], values["top_k"], values["min_p"]) == (0.8, 0.95, 40, 0.05)
    assert (values["repeat_penalty"], values["presence_penalty"], values["frequency_penalty"]) == (1.0, 0.0, 0.0)
    assert "seed" not in values


def test_the_wheel_has_every_field_with_our_default() -> None:
    fresh = xllamacpp.CommonParams().sampling
    for name, knob in KNOBS.items():
        value = getattr(fresh, knob.field)
        assert knob.default is None or value == pytest.approx(knob.default), name


def test_the_entry_wins() -> None:
    values = sampling(entry(temperature=0, top_k=1, max_tokens=256))
    assert (values["temperature"], values["top_k"], values["max_tokens"], values["top_p"]) == (0.0, 1, 256, 0.95)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("temprature", 1.0, "unknown sampling parameter 'temprature'; known: temperature, "),
        ("top_k", 1.5, "sampling.top_k must be a whole number"),
        ("temperature", "hot", "sampling.temperature must be a number"),
        ("temperature", True, "must be a number"),
        ("min_p", None, "must be a number"),
    ],
)
def test_nonsense_is_refused(name: str, value: Json, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        sampling(entry(**{name: value}))
    assert caught.value.param == name
