"""An operator's route: the processes of this install, as the supervisor last told of them."""

from fastapi import APIRouter

from api.cold import AdminKey, ServicesDep
from infra.supervisor.types import ChildStatus
from infra.types import Frozen

router = APIRouter(prefix="/admin/api", tags=["admin"])


class Process(Frozen):
    """One process: the front itself, the flow-run server, the worker process, or one that serves a model.

    `incarnation` counts its starts; `reason` says how the one before, or the last one, ended.
    """

    name: str
    status: ChildStatus
    pid: int | None
    incarnation: int
    reason: str | None


class Processes(Frozen):
    """All of them."""

    processes: list[Process]


@router.get("/processes", summary="Processes")
async def list_processes(services: ServicesDep, _key: AdminKey) -> Processes:
    """Every process that the supervisor keeps: whether it runs, and how it ended before."""
    return Processes(
        processes=[
            Process(
                name=state.name,
                status=state.status,
                pid=state.pid,
                incarnation=state.incarnation,
                reason=state.reason,
            )
            for state in services.children.states().values()
        ]
    )
