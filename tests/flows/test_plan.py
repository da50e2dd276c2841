"""A plan is JSON, and refers only backwards; every planner's plan comes back from JSON as it was."""

from pathlib import Path

import pytest

from flows.chat import plan_chat, plan_completions
from flows.embeddings import plan_embeddings
from flows.plan import Plan, Step, StepId, TaskName
from flows.rerank import plan_rerank
from infra.errors import InvalidRequest
from infra.types import Json, ModelName
from workers.types import Capability, ModelEntry, ModelFormat


def make_entry(**fields: object) -> ModelEntry:
    row = {"name": "m", "format": ModelFormat.GGUF, "capabilities": (Capability.CHAT,), "path": Path("/weights/m.gguf")}
    return ModelEntry.model_validate(row | fields)


def step(name: str, **refs: str) -> Step:
    return Step(StepId(name), TaskName("t"), refs={key: StepId(value) for key, value in refs.items()})


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((), "at least one step"),
        ((step("a"), step("a")), "two steps are called 'a'"),
        ((step("a", of="b"), step("b")), "'a' refers to 'b', which does not come before it"),
        ((step("a", of="a"),), "'a' refers to 'a'"),
    ],
)
def test_a_plan_that_could_not_run_is_refused(steps: tuple[Step, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Plan("chat", ModelName("m"), steps)


def test_every_flow_plan_survives_json() -> None:
    entry = make_entry(rerank_method="cosine")
    rerank: dict[str, Json] = {"query": "q", "documents": ["a", "b"], "top_n": 1, "return_documents": True}
    plans = [
        plan_chat({"messages": [{"role": "user", "content": "hi"}], "x": {"ref": "not a reference"}}, entry, "k"),
        plan_completions({"prompt": "once"}, entry, None),
        plan_embeddings({"input": ["a", "b"]}, entry),
        plan_rerank(rerank, entry),
        plan_rerank(rerank, make_entry(rerank_method="cross_encoder")),
    ]
    for plan in plans:
        assert Plan.from_json(plan.to_json()) == plan


def test_text_that_is_no_plan_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not a plan"):
        Plan.from_json(b'{"flow": "chat", "model": "m", "steps": [{"id": "a"}]}')
    with pytest.raises(InvalidRequest, match="refers to 'b'"):
        Plan.from_json(
            b'{"flow": "f", "model": "m", "steps": [{"id": "a", "task": "t", "inputs": {}, "refs": {"x": "b"}}]}'
        )


def test_chat_is_one_step_with_its_conversation() -> None:
    plan = plan_chat({"messages": []}, make_entry(), "session:7")
    (only,) = plan.steps
    assert (plan.flow, only.task, only.inputs["path"]) == ("chat", "generate", "/chat/completions")
    assert only.demand is not None
    assert (only.demand.capability, only.demand.affinity_key) == (Capability.CHAT, "session:7")


def test_rerank_scores_where_the_model_is_and_ranks_at_the_front() -> None:
    request: dict[str, Json] = {"query": "q", "documents": ["a"], "top_n": None, "return_documents": False}
    scored, ranked = plan_rerank(request, make_entry(rerank_method="cosine")).steps
    assert (scored.task, ranked.task, ranked.refs) == ("embed", "rank", {"scored": scored.id})
    assert scored.demand is not None
    assert ranked.demand is None
    assert plan_rerank(request, make_entry()).steps[0].task == "score"
