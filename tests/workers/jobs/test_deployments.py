from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

from flows.jobs import FLOWS
from infra.errors import Bug
from tests.repo.tree import ROOT
from workers.jobs.deployments import Deployments, _changed, _flow, _wanted, declared, prefect_yaml


def test_the_file_is_found_in_a_clone() -> None:
    assert prefect_yaml() == ROOT / "prefect.yaml"


def test_every_entrypoint_loads() -> None:
    """Without placeholders: Prefect puts one in the place of a flow that cannot be imported, and says nothing."""
    for each in yaml.safe_load(prefect_yaml().read_text())["deployments"]:
        loaded: Any = load_flow_from_entrypoint(each["entrypoint"], use_placeholder_flow=False)
        assert loaded is FLOWS[loaded.name]


def test_each_flow_has_one_deployment_named_like_it() -> None:
    deployments, actions = declared(prefect_yaml())
    assert sorted(each["name"] for each in deployments) == sorted(FLOWS)
    assert {each["work_pool"]["name"] for each in deployments} == {"head"}
    assert (actions["build"], actions["push"], actions["pull"]) == ([], [], [])


@pytest.mark.parametrize("text", ["", "deployments: []", "{", "deployments: [{name: 3"])
def test_a_file_without_deployments_is_our_mistake(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prefect.yaml"
    file.write_text(text)
    with pytest.raises(Bug, match="declares no deployment"):
        Deployments(file)


def _standing(**changes: Any) -> Any:
    each = declared(prefect_yaml())[0][0]
    return SimpleNamespace(**{**_wanted(each, _flow(each)), **changes})


def test_a_deployment_that_stands_as_declared_is_let_alone() -> None:
    each = declared(prefect_yaml())[0][0]
    wanted = _wanted(each, _flow(each))
    assert _changed(_standing(), wanted) == []
    assert _changed(_standing(pull_steps=None, job_variables=None), wanted) == []


@pytest.mark.parametrize(
    "change",
    [
        {"entrypoint": "evil.py:flow"},
        {"pull_steps": [{"prefect.deployments.steps.run_shell_script": {"script": "id"}}]},
        {"job_variables": {"command": "id"}},
        {"work_pool_name": "another"},
        {"parameters": {"request": {}}},
    ],
)
def test_one_that_was_edited_is_put_right(change: dict[str, Any]) -> None:
    each = declared(prefect_yaml())[0][0]
    assert _changed(_standing(**change), _wanted(each, _flow(each))) == list(change)
