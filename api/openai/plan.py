"""`/v1/plan`: the DAG of a request and where each step would go, without running it."""

from typing import Any

from fastapi import APIRouter

from api.cold import ServicesDep, UserKey
from api.openai.resources import RESOURCES
from flows.distribute import Cut
from flows.plan import Plan
from infra.errors import InvalidRequest
from infra.types import Frozen
from workers.types import Placement

router = APIRouter(prefix="/v1", tags=["plan"])


class PlanRequest(Frozen):
    """A request as its endpoint would take it."""

    endpoint: str
    request: dict[str, Any]


class StepPlacement(Frozen):
    """Where a step would go; None for a step that the front does itself."""

    step: str
    placement: Placement | None


class Planned(Frozen):
    """The DAG, and the placement of each of its steps."""

    plan: Plan
    placements: list[StepPlacement]


@router.post("/plan", summary="Plan a request without running it")
async def plan_request(asked: PlanRequest, services: ServicesDep, key: UserKey) -> Planned:
    """What `endpoint` (chat, completions, responses, embeddings, rerank, transcription, ocr, …) would do with `request`
    now. Of a file it is told what the planner has to know: `{"file": {"seconds": 600}}` of a recording,
    `{"files": [{"pages": 20}]}` of documents."""
    resource = RESOURCES.get(asked.endpoint)
    if resource is None:
        raise InvalidRequest(
            f"there is no endpoint {asked.endpoint!r}; name one of {', '.join(RESOURCES)}", param="endpoint"
        )
    entry = services.shelf.catalogue.get(str(asked.request.get("model", "")))
    request = await resource.recalled(services, key, asked.request, entry)
    plan, _stream = resource.planned(request, entry, None, cut=Cut(services.sites))
    placements = [
        StepPlacement(step=step.id, placement=await services.fleet.preview(step.demand, entry) if step.demand else None)
        for step in plan.steps
    ]
    return Planned(plan=plan, placements=placements)
