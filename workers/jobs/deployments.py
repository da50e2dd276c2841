"""The deployments of `prefect.yaml`: applied as `prefect deploy --all` would, and told from all others.

Prefect has no public function for a whole file, so this calls the command's own inner ones (3.9.1, pinned). A
deployment that stands as declared is left alone.
"""

import io
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.cli.deploy._config import _load_deploy_configs_and_actions
from prefect.cli.deploy._core import _run_single_deploy
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema
from rich.console import Console

from infra.errors import Bug

log = logging.getLogger(__name__)

Declared = dict[str, Any]
"""One deployment as `prefect.yaml` has it."""


def prefect_yaml() -> Path:
    """The file: beside this module in a wheel, at the root of a clone."""
    here = Path(__file__).resolve()
    beside = here.with_name("prefect.yaml")
    return beside if beside.exists() else here.parents[2] / "prefect.yaml"


def declared(file: Path) -> tuple[list[Declared], dict[str, Any]]:
    """The deployments of the file, and its build, push and pull steps.

    Raises:
        Bug: there are none: Prefect's reader says nothing of a file that it cannot read.
    """
    said = io.StringIO()
    deployments, actions = _load_deploy_configs_and_actions(file, console=Console(file=said))
    if not deployments:
        raise Bug(f"{file} declares no deployment: {said.getvalue().strip()}")
    return deployments, actions


class Deployments:
    """The install's own deployments.

    Raises:
        Bug: the file declares none.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._declared, self._actions = declared(file)
        self._flows = {f"{flow.name}/{each['name']}": flow for each in self._declared for flow in (_flow(each),)}
        self._ids: dict[UUID, str] = {}

    async def apply(self, client: PrefectClient, *, lost: bool = False) -> int:
        """Make Prefect have every deployment of the file as it stands there; returns how many had to be written.

        `lost`: only those that were deleted, or whose work pool was, so that their runs would wait for ever. Other
        changes of an operator's hold until the next start.

        Raises:
            httpx.HTTPError: Prefect does not answer.
        """
        written = 0
        for each, (name, flow) in zip(self._declared, self._flows.items(), strict=True):
            found = await _read(client, name)
            changed = [] if found is None else _changed(found, _wanted(each, flow))
            if lost and found is not None and found.work_pool_name is not None:
                changed = []
            if found is None or changed:
                if changed:
                    log.warning("deployment %s is not as declared (%s): it is put right", name, ", ".join(changed))
                await self._deploy(each)
                written += 1
                found = await client.read_deployment_by_name(name)
            self._ids[found.id] = flow.name
        return written

    async def _deploy(self, each: Declared) -> None:
        await _run_single_deploy(
            each,
            self._actions,
            prefect_file=self._file,
            console=Console(file=io.StringIO()),
            is_interactive=lambda: False,
        )

    async def flow_of(self, client: PrefectClient, deployment: UUID | None) -> str | None:
        """The name of the flow that a deployment stands for; None if it is none of ours.

        One that was deleted and made anew under its name has another id, and is ours as before.
        """
        if deployment is None or deployment in self._ids:
            return self._ids.get(deployment) if deployment is not None else None
        try:
            found = await client.read_deployment(deployment)
            flow = await client.read_flow(found.flow_id)
        except ObjectNotFound:
            return None
        if f"{flow.name}/{found.name}" not in self._flows:
            return None
        self._ids[deployment] = flow.name
        return flow.name


def _flow(each: Declared) -> Flow[..., Any]:
    """The flow that a deployment's entrypoint names; never a placeholder for one that cannot be imported."""
    flow: Flow[..., Any] = load_flow_from_entrypoint(each["entrypoint"], use_placeholder_flow=False)
    return flow


async def _read(client: PrefectClient, name: str) -> DeploymentResponse | None:
    try:
        return await client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def _wanted(each: Declared, flow: Flow[..., Any]) -> dict[str, Any]:
    """The fields of a deployment that are ours to say. Schedules, limits and pauses are the operator's; the path means
    nothing here, and Prefect's own command never takes one away."""
    return {
        "entrypoint": each["entrypoint"],
        "work_pool_name": each["work_pool"]["name"],
        "tags": each.get("tags", []),
        "description": each.get("description") or flow.description,
        "parameter_openapi_schema": parameter_schema(flow).model_dump(exclude_unset=True),
        "pull_steps": [],
        "job_variables": {},
        "parameters": each.get("parameters") or {},
        "enforce_parameter_schema": each.get("enforce_parameter_schema", True),
    }


def _changed(found: DeploymentResponse, wanted: Mapping[str, Any]) -> list[str]:
    """The fields that stand otherwise; nothing and emptiness are the same."""
    return [name for name, value in wanted.items() if (getattr(found, name) or None) != (value or None)]
