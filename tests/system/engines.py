"""The engines of an install with cards by hand: how it gets two, and what they do."""

from typing import Any

from tests.system.product import Product

CARD = '[[cards.engine_specs]]\nname = "{name}"\nbackend = "cpu"\nmemory_mib = 4096\n'
CARDS = ("cpu-a", "cpu-b")


def two_cards(served: Product, models: str) -> None:
    """Start it with two cards, and these rows of models."""
    rows = "".join(CARD.format(name=name) for name in CARDS) + models
    served.home.joinpath("coderai.toml").write_text(rows)
    served.start()


def engines_of(served: Product, model: str) -> list[dict[str, Any]]:
    """A model's engines as an operator sees them."""
    return [each for each in served.get("/admin/api/engines")["engines"] if each["model"] == model]


def busy(served: Product, model: str) -> set[str]:
    """The cards whose engine is at work."""
    return {engine["pool"] for engine in engines_of(served, model) if engine["in_flight"]}


def pids_of(served: Product, model: str) -> dict[str, int]:
    """The engine processes of a model, by card."""
    lines = served.processes().items()
    return {
        pool: pid for pool in CARDS for pid, line in lines if f'"name":"{model}"' in line and f'"pool":"{pool}"' in line
    }
