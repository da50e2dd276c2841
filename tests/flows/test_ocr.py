"""Documents in parts: by file, by page, over the engines; every page once, in order."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.ocr import MOST_PARTS, count_pages, cut, plan_ocr, spread_ocr, usual_sizes
from flows.plan import Plan
from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from workers.sites import Site
from workers.types import Capability, Distribute, ModelFormat

ENTRY = make_entry("reader", format=ModelFormat.RAPIDOCR, capabilities=(Capability.OCR,))


def request_of(*pages: int, batch: bool | None = None) -> dict[str, Json]:
    """Documents of so many pages; 0 is one that was refused."""
    files: list[Json] = [
        {"name": f"{index}.pdf", "pages": count, "blob": f"sha256:{index:064x}"}
        if count
        else {"name": f"{index}.pdf", "error": {"message": "damaged", "code": "unreadable", "kind": "InvalidRequest"}}
        for index, count in enumerate(pages)
    ]
    return {"files": files, "batch": len(pages) > 1 if batch is None else batch, "dpi": 200, "layout": True}


def pieces(plan: Plan) -> list[list[tuple[Json, Json, Json]]]:
    """What each part reads: file, first and last page."""
    found = []
    for step in plan.steps:
        its = step.inputs.get("pieces")
        if isinstance(its, list):
            rows = [piece for piece in its if isinstance(piece, dict)]
            found.append([(piece["file"], piece["first"], piece["last"]) for piece in rows])
    return found


def test_one_short_document_is_one_step() -> None:
    plan = plan_ocr(request_of(3), ENTRY)
    (step,) = plan.steps
    assert (step.task, step.items, pieces(plan)) == ("ocr", 3, [[(0, 1, 3)]])
    assert step.demand is not None
    assert (step.demand.model, step.demand.capability) == ("reader", Capability.OCR)


def test_a_long_document_is_cut_by_pages() -> None:
    plan = plan_ocr(request_of(20), ENTRY)
    assert [step.task for step in plan.steps] == ["ocr_part"] * 3 + ["merge_ocr"]
    assert pieces(plan) == [[(0, 1, 7)], [(0, 8, 14)], [(0, 15, 20)]]


def test_a_batch_is_cut_by_files_and_the_refused_ones_are_only_shown() -> None:
    plan = plan_ocr(request_of(1, 0, 2), ENTRY)
    assert pieces(plan) == [[(0, 1, 1)], [(2, 1, 2)]]
    merge = plan.steps[-1]
    assert merge.demand is None
    assert set(merge.refs) == {"part-1", "part-2"}
    assert [set(file) for file in merge.inputs["files"] if isinstance(file, dict)] == [  # type: ignore[union-attr]
        {"name", "pages"},
        {"name", "error"},
        {"name", "pages"},
    ]


def test_a_batch_of_refused_documents_asks_no_engine() -> None:
    (merge,) = plan_ocr(request_of(0, 0), ENTRY).steps
    assert (merge.task, merge.refs, merge.demand) == ("merge_ocr", {}, None)


def test_a_plan_goes_through_json() -> None:
    plan = plan_ocr(request_of(9, 0, 1), ENTRY)
    assert Plan.from_json(plan.to_json()) == plan


def site(pool: str, speed: float | None = None) -> Site:
    return Site(PoolId(pool), EngineId(f"{pool}/reader"), True, speed)


def test_pages_are_spread_over_the_engines_that_hold_the_model() -> None:
    plan = spread_ocr(request_of(2, 0, 4), ENTRY, [site("cpu", 2.0), site("gpu", 1.0)])
    assert plan is not None
    assert pieces(plan) == [[(0, 1, 2), (2, 1, 2)], [(2, 3, 4)]]
    homes = [step.demand.home for step in plan.steps if step.demand]
    assert homes == ["cpu", "gpu"]
    assert [step.id for step in plan.steps] == ["split", "part-1", "part-2", "merge"]


@pytest.mark.parametrize(
    ("pages", "sites", "distribute"),
    [
        ([1], ["cpu", "gpu"], Distribute()),
        ([9], ["cpu"], Distribute()),
        ([9], ["cpu", "gpu"], Distribute(enabled=False)),
        ([9], ["cpu", "gpu"], Distribute(min_items=10)),
    ],
)
def test_what_is_better_not_spread(pages: Sequence[int], sites: Sequence[str], distribute: Distribute) -> None:
    entry = ENTRY.model_copy(update={"distribute": distribute})
    assert spread_ocr(request_of(*pages), entry, [site(pool) for pool in sites]) is None


@given(st.lists(st.integers(0, 300), min_size=1, max_size=100).filter(any))
def test_every_page_is_in_one_part_and_there_are_not_too_many_parts(pages: list[int]) -> None:
    sizes = usual_sizes(pages)
    parts = cut(pages, sizes)
    assert len(parts) <= MOST_PARTS
    read = [(file, page) for part in parts for file, first, last in part for page in range(first, last + 1)]
    assert read == [(file, page) for file, count in enumerate(pages) for page in range(1, count + 1)]
    assert [sum(last - first + 1 for _file, first, last in part) for part in parts] == sizes
    assert count_pages(request_of(*pages)) == sum(pages)
