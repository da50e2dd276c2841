"""The router's order, as tables: pin, warm, least busy, local first, owner; and a reason for whoever is not taken."""

from pathlib import Path
from typing import Any

import pytest

from infra.types import EngineId, ModelName, PoolId
from workers.router import place
from workers.types import Capability, Demand, EngineView, ModelEntry, ModelFormat, Placement, PoolView, Snapshot

GIB = 2**30


def make_entry(**fields: object) -> ModelEntry:
    row = {"name": "m", "format": ModelFormat.GGUF, "capabilities": (Capability.CHAT,), "path": Path("/weights/m.gguf")}
    return ModelEntry.model_validate(row | fields)


def make_engine(pool: str, in_flight: int = 0, **fields: object) -> EngineView:
    row: dict[str, object] = {"state": "ready", "slots": 4, "local": True, "incarnation": 1}
    return EngineView(
        engine=EngineId(f"{pool}/m"),
        model=ModelName("m"),
        pool=PoolId(pool),
        in_flight=in_flight,
        **(row | fields),  # type: ignore[arg-type]
    )


def make_pool(pool: str, free_gib: float = 8, backend: str = "cuda", **fields: object) -> PoolView:
    row = {"total_bytes": 16 * GIB, "free_bytes": int(free_gib * GIB)}
    return PoolView(pool=PoolId(pool), backend=backend, **(row | fields))  # type: ignore[arg-type]


def decide(
    engines: tuple[EngineView, ...] = (),
    pools: tuple[PoolView, ...] = (make_pool("a"), make_pool("b")),
    entry: ModelEntry | None = None,
    warm: str | None = None,
    needed_gib: float = 1,
    tried: frozenset[tuple[EngineId, int]] = frozenset(),
) -> Placement:
    return place(
        Demand(ModelName("m"), Capability.CHAT),
        entry or make_entry(),
        Snapshot(pools, engines),
        needed_bytes=int(needed_gib * GIB),
        warm=EngineId(warm) if warm else None,
        tried=tried,
    )


def reasons(placement: Placement) -> dict[str, str]:
    return {over.candidate: over.reason for over in placement.passed_over}


def test_a_pin_wins_over_everything() -> None:
    placement = decide((make_engine("a"), make_engine("b", in_flight=3)), entry=make_entry(engine="b"), warm="a/m")
    assert (placement.action, placement.engine) == ("use", "b/m")
    assert reasons(placement) == {"a/m": "the model is pinned to b"}


def test_a_warm_cache_wins_over_less_busy() -> None:
    placement = decide((make_engine("a"), make_engine("b", in_flight=2)), warm="b/m")
    assert placement.engine == "b/m"
    assert "cache" in placement.reason
    assert "a/m" in reasons(placement)


def test_a_warm_but_full_engine_yields() -> None:
    placement = decide((make_engine("a", in_flight=3), make_engine("b", in_flight=4)), warm="b/m")
    assert placement.engine == "a/m"
    assert reasons(placement)["b/m"] == "all 4 slots are taken"


@pytest.mark.parametrize(
    ("busy_a", "busy_b", "chosen"), [(0, 1, "a/m"), (2, 1, "b/m"), (1, 1, "a/m")], ids=["a", "b", "tie by name"]
)
def test_the_least_busy_resident_engine_is_taken(busy_a: int, busy_b: int, chosen: str) -> None:
    assert decide((make_engine("a", busy_a), make_engine("b", busy_b))).engine == chosen


def test_local_comes_before_far_on_a_tie_only() -> None:
    far = make_engine("a", local=False)
    assert decide((far, make_engine("b"))).engine == "b/m"
    assert decide((far, make_engine("b", in_flight=1))).engine == "a/m"


def test_all_full_means_queue_at_the_least_loaded() -> None:
    placement = decide((make_engine("a", 4), make_engine("b", 2, slots=2)))
    assert placement.action == "queue"
    assert placement.reason == "all 4 slots are taken"


def test_a_pool_at_its_limit_is_waited_for_only_if_no_other_has_room() -> None:
    full = make_engine("a", in_flight=1, full="pool a does 1 at once and no more")
    placement = decide((full,))
    assert (placement.action, placement.engine, placement.reason) == ("queue", "a/m", full.full)
    placement = decide((full, make_engine("b", in_flight=3)))
    assert (placement.action, placement.engine) == ("use", "b/m")
    assert reasons(placement)["a/m"] == full.full
    placement = decide((full, make_engine("b", in_flight=4)))
    assert (placement.action, placement.engine, placement.reason) == ("queue", "a/m", full.full)
    assert reasons(placement)["b/m"] == "all 4 slots are taken"


def test_a_loading_engine_is_waited_for_when_none_is_ready() -> None:
    loading = make_engine("a", state="loading", reason="loading for 3 s")
    placement = decide((loading,))
    assert (placement.action, placement.pool, placement.reason) == ("wait_load", "a", "loading for 3 s")
    assert decide((loading, make_engine("b"))).engine == "b/m"


def test_not_resident_means_a_load_where_most_is_free_accelerators_first() -> None:
    pools = (make_pool("cpu", 64, "cpu"), make_pool("a", 4), make_pool("b", 8))
    placement = decide(pools=pools)
    assert (placement.action, placement.pool) == ("load", "b")
    assert set(reasons(placement)) == {"cpu", "a"}


def test_room_by_unloading_idle_models_is_second_choice() -> None:
    crowded = make_pool("a", 0.5, reclaimable_bytes=4 * GIB)
    assert decide(pools=(crowded,)).action == "load"
    assert decide(pools=(crowded, make_pool("cpu", 8, "cpu"))).pool == "cpu"


def test_no_room_anywhere_says_how_much_is_missing() -> None:
    placement = decide(pools=(make_pool("a", 0.5), make_pool("b", 0.25)), needed_gib=2)
    assert placement.action == "none"
    assert placement.pool is None
    assert "a: no room: 2.00 GiB needed, 0.50 GiB free" in placement.reason


def test_unusable_and_paused_cards_are_passed_over_with_their_reason() -> None:
    pools = (
        make_pool("a", unusable="the llama.cpp in use has no cuda support"),
        make_pool("b", paused="91 °C, limit 90 °C"),
        make_pool("cpu", backend="cpu"),
    )
    placement = decide(pools=pools)
    assert placement.pool == "cpu"
    assert reasons(placement) == {"a": "the llama.cpp in use has no cuda support", "b": "91 °C, limit 90 °C"}


def test_a_hot_card_takes_no_new_work_even_where_the_model_is_resident() -> None:
    pools = (make_pool("a", paused="91 °C, limit 90 °C"), make_pool("b"))
    placement = decide((make_engine("a", paused="91 °C, limit 90 °C"),), pools)
    assert (placement.action, placement.pool) == ("load", "b")
    assert reasons(placement)["a/m"] == "91 °C, limit 90 °C"


def test_an_engine_that_failed_the_step_is_not_taken_again_until_it_has_restarted() -> None:
    tried = frozenset({(EngineId("a/m"), 1)})
    assert decide((make_engine("a"),), (make_pool("a"),), tried=tried).action == "none"
    assert decide((make_engine("a", incarnation=2),), tried=tried).action == "use"


def test_a_quarantined_engine_blocks_its_card_for_this_model_only() -> None:
    broken = make_engine("a", state="quarantined", reason="given up after repeated crashes")
    placement = decide((broken,))
    assert (placement.action, placement.pool) == ("load", "b")
    assert reasons(placement)["a/m"] == "given up after repeated crashes"


def test_a_pin_to_a_pool_that_is_not_there_says_so() -> None:
    placement = decide(pools=(), entry=make_entry(engine="gone"))
    assert placement.reason == "model 'm' is pinned to pool 'gone', which this install does not have"


def test_a_far_service_is_never_loaded_on_a_card() -> None:
    entry = make_entry(path=None, format=ModelFormat.SERVICE, service_url="http://box")
    down = make_engine("service:box", state="down", reason="not answering", local=False)
    placement = decide((down,), entry=entry)
    assert placement.action == "none"
    assert "not answering" in placement.reason


GIVEN_UP = make_engine("a", state="quarantined", reason="given up after repeated crashes")
TRIED = frozenset({(EngineId("a/m"), 1)})


@pytest.mark.parametrize(
    ("engines", "pools", "more", "lasting"),
    [
        ((GIVEN_UP,), (make_pool("a"),), {}, True),
        ((GIVEN_UP,), (make_pool("a", paused="91 °C"),), {}, True),
        ((GIVEN_UP,), (make_pool("a"), make_pool("b", 0.5)), {"needed_gib": 2}, False),
        ((), (make_pool("a", unusable="no driver"),), {}, True),
        ((), (make_pool("a", unusable="no driver"), make_pool("b", paused="91 °C")), {}, False),
        ((), (make_pool("a", 0.5),), {"needed_gib": 2}, False),
        ((), (make_pool("a", 0.5),), {"needed_gib": 17}, True),
        ((), (make_pool("a", 0.5, reserve_bytes=GIB),), {"needed_gib": 15}, False),
        ((), (make_pool("a", 0.5, reserve_bytes=GIB),), {"needed_gib": 15.5}, True),
        ((), (), {}, True),
        ((), (make_pool("a", 0.5),), {"needed_gib": 2, "entry": make_entry(engine="gone")}, True),
        ((make_engine("a"),), (make_pool("a"),), {"tried": TRIED}, True),
        ((make_engine("a", paused="91 °C"),), (make_pool("a", paused="91 °C"),), {"tried": TRIED}, False),
        ((make_engine("a"),), (make_pool("a"), make_pool("b", 0.5)), {"tried": TRIED, "needed_gib": 2}, False),
    ],
)
def test_what_goes_by_itself_is_told_from_what_waits_for_somebody(
    engines: tuple[EngineView, ...], pools: tuple[PoolView, ...], more: dict[str, Any], lasting: bool
) -> None:
    placement = decide(engines, pools, **more)
    assert (placement.action, placement.lasting) == ("none", lasting)


def test_a_service_that_is_down_may_come_up_again() -> None:
    entry = make_entry(path=None, format=ModelFormat.SERVICE, service_url="http://box")
    down = make_engine("service:box", state="down", reason="not answering", local=False)
    assert not decide((down,), entry=entry).lasting
    tried = frozenset({(EngineId("service:box/m"), 1)})
    assert decide((make_engine("service:box", local=False),), entry=entry, tried=tried).lasting


def test_who_only_looks_for_an_idle_engine_is_told_nothing_of_it() -> None:
    demand = Demand(ModelName("m"), Capability.CHAT, idle=True)
    assert not place(demand, make_entry(), Snapshot((), (GIVEN_UP,))).lasting


PART = Demand(ModelName("m"), Capability.EMBEDDINGS, home=PoolId("a"))


def place_part(*engines: EngineView, pools: tuple[PoolView, ...] = (), **more: Any) -> Placement:
    return place(PART, make_entry(), Snapshot(pools, engines), **more)


def test_a_part_goes_where_it_was_planned_for_however_busy() -> None:
    placement = place_part(make_engine("a", 3), make_engine("b"), pools=(make_pool("a"), make_pool("b")))
    assert (placement.action, placement.engine) == ("use", "a/m")
    assert reasons(placement) == {"b/m": "this part is for a"}


def test_a_part_s_model_is_loaded_at_its_home_though_others_hold_it() -> None:
    pools = (make_pool("a"), make_pool("b"))
    placement = place_part(make_engine("b"), pools=pools, needed_bytes=GIB)
    assert (placement.action, placement.pool) == ("load", "a")
    assert place_part(make_engine("b")).action == "none", "without the pools it is not known yet"


@pytest.mark.parametrize(
    "home",
    [
        make_pool("a", 0, reclaimable_bytes=8 * GIB),
        make_pool("a", paused="too hot"),
        make_pool("gone"),
    ],
    ids=["nothing is unloaded for a part", "paused", "gone"],
)
def test_a_part_whose_home_cannot_take_it_goes_elsewhere(home: PoolView) -> None:
    placement = place_part(make_engine("b"), pools=(home, make_pool("b")), needed_bytes=GIB)
    assert (placement.action, placement.engine) == ("use", "b/m")


def test_a_part_s_second_try_goes_anywhere() -> None:
    tried = frozenset({(EngineId("a/m"), 1)})
    placement = place_part(make_engine("a"), make_engine("b"), pools=(make_pool("a"), make_pool("b")), tried=tried)
    assert (placement.action, placement.engine) == ("use", "b/m")


def test_a_second_try_unloads_nothing_either() -> None:
    tried, full = frozenset({(EngineId("a/m"), 1)}), make_pool("b", 0, reclaimable_bytes=8 * GIB)
    assert place_part(make_engine("a"), pools=(make_pool("a"), full), tried=tried, needed_bytes=GIB).action == "none"


def test_a_cold_model_makes_room_for_itself_as_always() -> None:
    full = make_pool("a", 0, reclaimable_bytes=8 * GIB)
    placement = place_part(pools=(full,), needed_bytes=GIB)
    assert (placement.action, placement.pool) == ("load", "a")


def test_a_model_s_pin_wins_over_a_part_s_home() -> None:
    demand = Demand(ModelName("m"), Capability.EMBEDDINGS, pin=PoolId("b"), home=PoolId("a"))
    placement = place(demand, make_entry(), Snapshot((), (make_engine("a"), make_engine("b"))))
    assert placement.engine == "b/m"


def test_idle_is_an_engine_that_holds_the_model_and_does_nothing() -> None:
    demand = Demand(ModelName("m"), Capability.EMBEDDINGS, idle=True)
    pools = (make_pool("a"), make_pool("b"), make_pool("c"))

    def idle(*engines: EngineView) -> Placement:
        return place(demand, make_entry(), Snapshot(pools, engines))

    assert idle(make_engine("a", 1), make_engine("b")).engine == "b/m"
    nowhere = idle(make_engine("a", 1), make_engine("b", state="loading", reason="restarting"))
    assert nowhere.action == "none"
    assert "a/m: it is not idle" in nowhere.reason
