"""What is read of Prefect's answers."""

from datetime import UTC, datetime
from typing import Any

import pytest

from infra.prefect_shapes import FlowRun, RunFilter, WorkPoolState
from infra.types import RunId

NOW = "2026-01-02T03:04:05.678901Z"
RUN = {"id": "r", "name": "n", "flow_id": "00000000-0000-4000-8000-000000000001", "created": NOW}


@pytest.mark.parametrize(
    ("template", "device"),
    [
        ({"variables": {"properties": {"device": {"default": "cuda-0"}}}}, "cuda-0"),
        ({"variables": {"properties": {"device": {"type": "string"}}}}, None),
        ({"variables": {"properties": {"device": {"default": 0}}}}, None),
        ({"variables": {"properties": []}}, None),
        ({"variables": None}, None),
        ({}, None),
    ],
)
def test_the_device_of_a_pool(template: Any, device: str | None) -> None:
    pool = WorkPoolState.model_validate({"name": "p", "type": "coderai-card", "base_job_template": template})
    assert pool.device == device


def test_a_tag_s_value_may_hold_a_colon() -> None:
    run = FlowRun.model_validate(RUN | {"tags": ["keys", "model:hub:7b", "key:ann"]})
    assert (run.tag("model"), run.tag("key"), run.tag("lane")) == ("hub:7b", "ann", None)


@pytest.mark.parametrize(
    ("state", "terminal"),
    [("SCHEDULED", False), ("RUNNING", False), ("CANCELLING", False), ("COMPLETED", True), ("CRASHED", True)],
)
def test_terminal(state: str, terminal: bool) -> None:
    run = FlowRun.model_validate(RUN | {"state": {"type": state, "name": state, "timestamp": NOW}})
    assert run.terminal is terminal
    assert not FlowRun.model_validate(RUN).terminal


def test_a_filter_says_only_what_it_wants() -> None:
    assert RunFilter().to_json() == {}
    wanted = RunFilter((RunId("r"),), ("key:a", "model:b"), ("FAILED",), datetime(2026, 1, 2, 3, 4, 5, 6, UTC))
    assert wanted.to_json() == {
        "id": {"any_": ["r"]},
        "tags": {"all_": ["key:a", "model:b"]},
        "state": {"type": {"any_": ["FAILED"]}},
        "start_time": {"before_": "2026-01-02T03:04:05.000006+00:00"},
    }
