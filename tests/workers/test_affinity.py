"""Conversations: their keys, how long their engine is remembered, and how many."""

from dataclasses import dataclass

import pytest

from infra.types import EngineId, ModelName
from workers.affinity import Affinity, conversation_key

M = ModelName("m")
CPU, CARD = EngineId("cpu/m"), EngineId("cuda-1/m")


@dataclass
class Time:
    """A clock that stands still until it is moved."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("session", "user", "key"),
    [("s", "u", "session:s"), (None, "u", "user:u"), ("", "u", "user:u"), ("s", None, "session:s")],
)
def test_a_session_goes_before_a_user(session: str | None, user: str | None, key: str) -> None:
    assert conversation_key(session, user, "opening") == key


def test_an_opening_is_hashed_and_any_text_has_one() -> None:
    first, same, other = (conversation_key(None, "", text) for text in ("hello", "hello", "hello "))
    assert first == same != other
    assert first.startswith("opening:")
    assert "hello" not in first
    assert conversation_key(None, None, "\ud800") != conversation_key(None, None, "")
    assert len(conversation_key(None, None, "x" * 1_000_000)) == len(first)


def test_no_kind_of_key_can_pass_for_another() -> None:
    assert conversation_key("7", None, "") != conversation_key(None, "7", "")
    assert conversation_key(None, "session:7", "") != conversation_key("7", None, "")


def test_it_is_remembered_for_the_ttl_since_it_ran_last() -> None:
    time = Time()
    affinity = Affinity(ttl_s=10, clock=time)
    assert affinity.warm(M, "k") is None
    affinity.note(M, "k", CPU, 1)
    time.now_s += 10
    assert affinity.warm(M, "k") == (CPU, 1)
    time.now_s += 0.1
    assert affinity.warm(M, "k") is None
    affinity.note(M, "k", CARD, 2)
    assert affinity.warm(M, "k") == (CARD, 2)


def test_models_are_apart() -> None:
    affinity = Affinity()
    affinity.note(M, "k", CPU, 1)
    assert affinity.warm(ModelName("other"), "k") is None


def test_over_the_limit_the_longest_unused_goes() -> None:
    affinity = Affinity(limit=2)
    for key in ("a", "b"):
        affinity.note(M, key, CPU, 1)
    affinity.note(M, "a", CPU, 1)
    affinity.note(M, "c", CPU, 1)
    assert [affinity.warm(M, key) is not None for key in ("a", "b", "c")] == [True, False, True]


def test_a_long_name_of_a_conversation_takes_no_more_room_than_a_short_one() -> None:
    long, other = "x" * 10_000_000, "x" * 9_999_999 + "y"
    for key in (conversation_key(long, None, "o"), conversation_key(None, long, "o")):
        assert len(key) < 100
    assert conversation_key(long, None, "o") != conversation_key(other, None, "o")
    assert conversation_key("a", None, "o") == "session:a"
