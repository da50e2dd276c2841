"""Which model runs on which pool."""

from typing import Literal

import pytest

from infra.types import PoolId
from tests.fakes import make_entry
from workers.compat import misfit
from workers.types import ModelFormat, PoolView

Backend = Literal["cuda", "rocm", "vulkan", "cpu", "service"]


def pool(backend: Backend, unusable: str | None = None) -> PoolView:
    return PoolView(PoolId("p"), backend, 1, 1, unusable=unusable)


LOCAL = make_entry()
FAR = make_entry("far", path=None, format=ModelFormat.SERVICE, service_url="http://box")


@pytest.mark.parametrize("backend", ["cuda", "rocm", "vulkan", "cpu"])
def test_cards_take_weights_and_no_far_model(backend: Backend) -> None:
    assert misfit(LOCAL, pool(backend)) is None
    assert misfit(FAR, pool(backend)) == f"service models do not run on {backend} cards"


def test_a_far_service_takes_only_its_own() -> None:
    assert misfit(FAR, pool("service")) is None
    assert misfit(LOCAL, pool("service")) == "a far service serves only the models that name it"


def test_an_unusable_card_says_why() -> None:
    assert misfit(LOCAL, pool("cuda", "no build")) == "no build"


def test_every_format_is_in_the_table() -> None:
    for form in ModelFormat:
        misfit(LOCAL.model_copy(update={"format": form}), pool("cpu"))
