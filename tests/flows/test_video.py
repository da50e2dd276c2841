"""Videos in rows: each a step of its own, with its own seed, once, in order."""

import pytest

from flows.plan import Plan
from flows.video import plan_video, spread_video
from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from workers.sites import Site
from workers.types import Capability, Distribute, ModelFormat

ENTRY = make_entry("wan", format=ModelFormat.DIFFUSERS, capabilities=(Capability.VIDEO,))
IMAGE: dict[str, Json] = {"blob": f"sha256:{'0' * 64}"}


def request_of(count: int, **more: Json) -> dict[str, Json]:
    request: dict[str, Json] = {"prompt": "a cat", "n": count, "seed": 5, "num_frames": 9, "fps": 8.0, "loras": []}
    return request | {"response_format": "url", "width": None, "height": None, **more}


def site(pool: str, speed: float | None = None) -> Site:
    return Site(PoolId(pool), EngineId(f"{pool}/wan"), True, speed)


def seeds(plan: Plan) -> list[Json]:
    return [shot["seed"] for step in plan.steps if isinstance(shot := step.inputs.get("shot"), dict)]


def test_one_video() -> None:
    film, collect = plan_video(request_of(1, image=IMAGE, guidance_scale=3.0), ENTRY).steps
    assert (film.id, film.task, film.items, film.refs) == ("video-1", "film_video", 1, {})
    shot = {"prompt": "a cat", "num_frames": 9, "fps": 8.0, "guidance_scale": 3.0, "seed": 5}
    assert film.inputs == {"shot": shot, "loras": [], "image": IMAGE}
    assert film.demand is not None
    assert (film.demand.model, film.demand.capability, film.demand.home) == ("wan", Capability.VIDEO, None)
    assert (collect.task, collect.refs, collect.demand) == ("collect_videos", {"video-1": "video-1"}, None)
    assert collect.inputs == {"response_format": "url", "num_frames": 9, "fps": 8.0}


@pytest.mark.parametrize(("seed", "seeds_sent"), [(None, [{}, {}]), (5, [{"seed": 5}, {"seed": 6}])])
def test_a_far_service_is_asked_what_the_client_has_said(seed: Json, seeds_sent: list[dict[str, Json]]) -> None:
    entry = make_entry(
        "wan", format=ModelFormat.SERVICE, path=None, service_url="http://far", capabilities=(Capability.VIDEO,)
    )
    asked: dict[str, Json] = {"prompt": "a cat", "num_frames": 9, "fps": 8.0}
    told: dict[str, Json] = {"n": 2, "seed": seed, "asked": asked, "image": IMAGE}
    plan = plan_video(told | {"num_frames": 9, "fps": 8.0, "response_format": "url"}, entry)
    assert [step.task for step in plan.steps] == ["film_far", "film_far", "collect_videos"]
    assert [step.inputs for step in plan.steps[:-1]] == [{"asked": asked | sent, "image": IMAGE} for sent in seeds_sent]


def test_several_in_a_row_wait_for_each_other_and_not_for_slots() -> None:
    plan = plan_video(request_of(3), ENTRY)
    assert seeds(plan) == [5, 6, 7]
    assert [step.refs for step in plan.steps[:-1]] == [{}, {"before": "video-1"}, {"before": "video-2"}]
    assert list(plan.steps[-1].refs) == ["video-1", "video-2", "video-3"]


def test_a_row_for_each_engine() -> None:
    plan = spread_video(request_of(6), ENTRY, [site("a", 2.0), site("b", 1.0)])
    assert plan is not None
    assert seeds(plan) == [5, 6, 7, 8, 9, 10]
    homes = [step.demand.home for step in plan.steps if step.demand]
    assert homes == ["a"] * 4 + ["b"] * 2
    rows = [step.id for step in plan.steps[:-1] if not step.refs]
    assert rows == ["video-1", "video-5"]


def test_what_a_step_does_depends_on_the_request_alone() -> None:
    spread = spread_video(request_of(4), ENTRY, [site("a"), site("b")])
    assert spread is not None
    alone = plan_video(request_of(4), ENTRY)
    assert [(step.id, step.inputs) for step in spread.steps] == [(step.id, step.inputs) for step in alone.steps]


@pytest.mark.parametrize(
    ("count", "sites", "distribute"),
    [
        (1, ["a", "b"], Distribute()),
        (4, ["a"], Distribute()),
        (4, ["a", "b"], Distribute(enabled=False)),
        (4, ["a", "b"], Distribute(min_items=5)),
    ],
)
def test_what_is_better_not_spread(count: int, sites: list[str], distribute: Distribute) -> None:
    entry = ENTRY.model_copy(update={"distribute": distribute})
    assert spread_video(request_of(count), entry, [site(pool) for pool in sites]) is None


def test_a_plan_goes_through_json() -> None:
    plan = plan_video(request_of(2, image=IMAGE), ENTRY)
    assert Plan.from_json(plan.to_json()) == plan
