"""Types of work pools are answered from this machine, ours among them."""

import pytest

from infra.prefect_child.work_pool_types import OWN_TYPES, WORKER_TYPES, view_content
from tests.prefect_server import PrefectServer
from workers.jobs.worker import CardWorker


async def test_our_type_stands_beside_prefect_s() -> None:
    types = await view_content(WORKER_TYPES)
    assert types["coderai"] == OWN_TYPES
    assert "process" in types["prefect"]


@pytest.mark.parametrize("view", ["nothing", "../views/demo-flows", "aggregate-worker-metadata.json"])
async def test_what_prefect_does_not_know_is_not_there(view: str) -> None:
    with pytest.raises(KeyError):
        await view_content(view)


def test_what_is_offered_is_what_the_worker_reads() -> None:
    offered = OWN_TYPES[CardWorker.type]["default_base_job_configuration"]
    assert offered == CardWorker.get_default_base_job_template()


@pytest.mark.slow
def test_the_server_answers_so(prefect_server: PrefectServer) -> None:
    assert prefect_server.get(f"/collections/views/{WORKER_TYPES}")["coderai"] == OWN_TYPES
