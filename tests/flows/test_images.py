"""Images in parts: image i has the seed + i, however the request is cut; and the cut does not look at the cluster."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.distribute import Cut, in_parts
from flows.images import SPREAD_IMAGES, plan_images, spread_images
from flows.plan import Plan
from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from workers.sites import Site
from workers.types import Capability, Distribute, ModelEntry, ModelFormat

ENTRY = make_entry("sd", format=ModelFormat.DIFFUSERS, capabilities=(Capability.IMAGES,))
REF = f"sha256:{7:064x}"


def request_of(n: int, **more: Json) -> dict[str, Json]:
    return {
        "task": "generate",
        "prompt": "a fox",
        "n": n,
        "seed": 100,
        "width": 64,
        "height": None,
        "loras": [],
        "response_format": "url",
        "output_format": "png",
        "quality": 100,
        "user": "me",
        **more,
    }


FAR = make_entry(
    "dalle", format=ModelFormat.SERVICE, service_url="http://far", path=None, capabilities=(Capability.IMAGES,)
)
FAR_REQUEST: dict[str, Json] = {"task": "generate", "n": 3, "seed": None, "asked": {"prompt": "a fox"}}


def site(name: str, *, resident: bool = True, speed: float | None = None) -> Site:
    return Site(PoolId(name), EngineId(f"{name}/sd"), resident, speed)


def seeds(plan: Plan) -> list[Json]:
    return [seed for step in plan.steps for seed in _list(step.inputs.get("seeds"))]


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def homes(plan: Plan) -> list[str | None]:
    return [step.demand.home for step in plan.steps if step.demand is not None]


def test_one_image() -> None:
    plan = plan_images(request_of(1), ENTRY)
    draw, merge = plan.steps
    assert draw.inputs == {
        "task": "generate",
        "drawing": {"prompt": "a fox", "width": 64, "output_format": "png", "quality": 100},
        "seeds": [100],
        "loras": [],
    }
    assert (draw.items, draw.demand and draw.demand.capability) == (1, Capability.IMAGES)
    assert (merge.demand, merge.refs) == (None, {"part-1": draw.id})
    assert merge.inputs == {"response_format": "url", "output_format": "png"}
    assert Plan.from_json(plan.to_json()) == plan


def test_an_edit_has_its_pictures_and_adapters_in_every_part() -> None:
    loras: list[Json] = [{"blob": REF, "weight": 0.5, "name": "ink"}]
    request = request_of(2, task="edit", image={"blob": REF}, mask={"blob": REF}, strength=0.5, loras=loras)
    _split, *parts, _merge = spread_images(request, ENTRY, ()).steps
    for part in parts:
        assert {part.inputs[name]["blob"] for name in ("image", "mask")} == {REF}  # type: ignore[index,call-overload]
        assert (part.inputs["task"], part.inputs["loras"]) == ("edit", loras)


@pytest.mark.parametrize(
    ("more", "distribute", "wanted"),
    [
        ({}, Distribute(), [[None], [None], [None]]),
        ({"seed": 5}, Distribute(), [[5], [6], [7]]),
        ({"seed": 0}, Distribute(max_parts=2), [[0], [1, 2]]),
        ({"n": 1}, Distribute(), [[None]]),
        ({"seed": 9}, Distribute(enabled=False), [[9, 10, 11]]),
        ({"task": "edit", "image": {"blob": REF}, "mask": {"blob": REF}}, Distribute(), [[None]] * 3),
    ],
)
def test_a_far_service_is_asked_what_the_client_has_said(
    more: dict[str, Json], distribute: Distribute, wanted: list[Json]
) -> None:
    entry = FAR.model_copy(update={"distribute": distribute})
    request = FAR_REQUEST | {"response_format": "url"} | more
    plan = in_parts(SPREAD_IMAGES, request, entry, Cut(lambda _entry: ())) or plan_images(request, entry)
    drawing = [step for step in plan.steps if step.demand is not None]
    files: dict[str, Json] = {name: more[name] for name in ("image", "mask") if name in more}
    fixed: dict[str, Json] = {"task": request["task"], "asked": {"prompt": "a fox"}, **files}
    assert [step.inputs for step in drawing] == [{**fixed, "seeds": each} for each in wanted]
    assert {step.task for step in drawing} == {"draw_far"}
    assert plan.steps[-1].inputs == {"response_format": "url"}
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("entry", [ENTRY, FAR])
def test_a_stream_is_one_step(entry: ModelEntry) -> None:
    events: Json = {"type": "image_generation", "quality": "auto", "background": "auto"}
    far = entry is FAR
    request = FAR_REQUEST | {"events": events} if far else request_of(3, events=events, partial_images=2)
    (step,) = (plan := plan_images(request, entry)).steps
    assert (step.task, step.items) == ("stream_far" if far else "stream_images", 0)  # its reader may be slow
    assert step.inputs["events"] == events
    assert step.inputs.get("partial_images") == (None if far else 2)
    assert step.inputs["seeds"] == ([None] * 3 if far else [100, 101, 102])
    assert Plan.from_json(plan.to_json()) == plan


def test_each_image_is_a_step() -> None:
    plan = spread_images(request_of(4), ENTRY, ())
    assert [step.id for step in plan.steps] == ["split", "part-1", "part-2", "part-3", "part-4", "merge"]
    assert [step.inputs.get("seeds") for step in plan.steps[1:5]] == [[100], [101], [102], [103]]
    assert [step.items for step in plan.steps] == [0, 1, 1, 1, 1, 0]
    assert Plan.from_json(plan.to_json()) == plan


def test_every_engine_gets_one_and_the_others_go_to_whoever_is_free() -> None:
    two = spread_images(request_of(5), ENTRY, [site("a"), site("b")])
    assert homes(two) == ["a", "b", None, None, None]
    cold = [site("a"), site("b", resident=False)]
    assert homes(spread_images(request_of(5), ENTRY, cold)) == [None] * 5  # not worth a load, as far as is known
    slow = [site("a", speed=0.1), site("b", resident=False)]
    assert homes(spread_images(request_of(5), ENTRY, slow))[:2] == ["a", "b"]


def test_where_the_model_names_who_may_take_part_all_of_it_is_planned() -> None:
    entry = ENTRY.model_copy(update={"distribute": Distribute(nodes=("a", "b"))})
    plan = spread_images(request_of(6), entry, [site("a", speed=2.0), site("b", speed=1.0)])
    assert homes(plan) == ["a", "a", "a", "a", "b", "b"]


def test_fewer_parts_have_several_images() -> None:
    entry = ENTRY.model_copy(update={"distribute": Distribute(max_parts=2)})
    plan = spread_images(request_of(5), entry, [site("a"), site("b")])
    assert [step.inputs.get("seeds") for step in plan.steps[1:3]] == [[100, 101], [102, 103, 104]]
    assert plan.steps[0].inputs == {"sizes": [2, 3]}


@pytest.mark.parametrize("distribute", [Distribute(enabled=False), Distribute(min_items=4)])
def test_what_is_not_to_be_split_is_one_step(distribute: Distribute) -> None:
    entry = ENTRY.model_copy(update={"distribute": distribute})
    cut = Cut(lambda _entry: (site("a"), site("b")))
    assert in_parts(SPREAD_IMAGES, request_of(3), entry, cut) is None
    plan = plan_images(request_of(3), entry)
    assert [step.inputs.get("seeds") for step in plan.steps] == [[100, 101, 102], None]


def test_a_late_image_may_be_drawn_twice() -> None:
    entry = ENTRY.model_copy(update={"distribute": Distribute(hedge=True)})
    assert [step.hedge for step in spread_images(request_of(2), entry, ()).steps] == [False, True, True, False]


@given(n=st.integers(1, 10), speeds=st.lists(st.none() | st.floats(0.01, 100), max_size=6), most=st.integers(1, 12))
def test_every_image_once_and_a_retry_is_cut_alike(n: int, speeds: Sequence[float | None], most: int) -> None:
    entry = ENTRY.model_copy(update={"distribute": Distribute(max_parts=most)})
    sites = tuple(site(str(place), speed=speed) for place, speed in enumerate(speeds))
    plan = in_parts(SPREAD_IMAGES, request_of(n), entry, Cut(lambda _entry: sites)) or plan_images(request_of(n), entry)
    assert seeds(plan) == [100 + index for index in range(n)]
    sizes = tuple(step.items for step in plan.steps if step.items)
    again = in_parts(SPREAD_IMAGES, request_of(n), entry, Cut(lambda _entry: (), sizes if n > 1 else ()))
    again = again or plan_images(request_of(n), entry)
    assert [(step.id, step.inputs) for step in again.steps] == [(step.id, step.inputs) for step in plan.steps]
