"""What engines have delivered: a mean in which the newest counts most."""

import pytest

from infra.types import EngineId, ModelName
from workers.speeds import KNOWN_S, Speeds

FAST, MODEL = EngineId("a/m"), ModelName("m")


def test_the_newest_counts_most_and_the_old_is_not_forgotten() -> None:
    speeds = Speeds()
    assert speeds.of(FAST, MODEL) is None
    speeds.note(FAST, MODEL, 10, 1.0)
    assert speeds.of(FAST, MODEL) == 10
    speeds.note(FAST, MODEL, 20, 1.0)
    assert speeds.of(FAST, MODEL) == pytest.approx(13)
    assert speeds.of(EngineId("b/m"), MODEL) is None
    assert speeds.of(FAST, ModelName("other")) is None


@pytest.mark.parametrize(("items", "seconds"), [(1, 1.0), (0, 1.0), (8, 0.0)])
def test_what_tells_no_speed_is_not_noted(items: int, seconds: float) -> None:
    speeds = Speeds()
    speeds.note(FAST, MODEL, items, seconds)
    assert speeds.of(FAST, MODEL) is None


def test_what_was_long_ago_is_not_known_any_more() -> None:
    now_s = 0.0
    speeds = Speeds(lambda: now_s)
    speeds.note(FAST, MODEL, 10, 1.0)
    now_s = KNOWN_S - 1
    assert speeds.of(FAST, MODEL) == 10
    now_s = KNOWN_S
    assert speeds.of(FAST, MODEL) is None
    speeds.note(FAST, MODEL, 30, 1.0)
    assert speeds.of(FAST, MODEL) == 30
