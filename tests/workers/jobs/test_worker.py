from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.workers.base import BaseWorker

from flows.jobs import FLOWS
from workers.jobs.worker import CardWorker, HeadWorker, JobConfiguration, _bad_parameters, pid_of
from workers.pools.orders import CARD_TYPE, HEAD_TYPE


@pytest.mark.parametrize(("kind", "worker"), [(HEAD_TYPE, HeadWorker), (CARD_TYPE, CardWorker)])
def test_prefect_finds_our_types(kind: str, worker: type[HeadWorker]) -> None:
    import_module("workers.jobs.worker")
    assert BaseWorker.get_worker_class_from_type(kind) is worker


def test_a_pool_is_asked_for_nothing_but_its_device() -> None:
    assert HeadWorker.get_default_base_job_template()["variables"]["properties"] == {}
    assert set(CardWorker.get_default_base_job_template()["variables"]["properties"]) == {"device"}


async def test_it_is_not_started_by_hand() -> None:
    with pytest.raises(RuntimeError, match="are started by `coderai serve`"):
        await CardWorker(work_pool_name="cpu", name="w").setup()


async def test_a_jobs_configuration_comes_from_nowhere() -> None:
    """What a deployment or a run says of commands and environments is not even looked at."""
    run = FlowRun(id=uuid4(), flow_id=uuid4(), job_variables={"command": "id", "env": {"LD_PRELOAD": "x"}})
    nothing: Any = None
    made = await JobConfiguration.resolve_for_flow_run(run, client=nothing, work_pool=nothing, worker_name="w")
    assert (made.command, made.env, made.labels, made.name) == (None, {}, {}, None)


def test_parameters_are_held_against_the_flows_signature() -> None:
    assert _bad_parameters(FLOWS["chat"], {"request": {"model": "m"}}) is None
    for bad in ({}, {"request": "text"}, {"request": {}, "more": 1}):
        words = _bad_parameters(FLOWS["chat"], bad)
        assert words is not None
        assert words.startswith("the parameters do not fit the flow chat")


def test_the_pid_names_worker_and_run() -> None:
    run = uuid4()
    assert pid_of("coderai-cpu", run) == f"coderai-cpu:{run}"
