"""Every task that a planner names is there, and is async."""

import inspect

import flows.chat
import flows.distribute
import flows.embeddings
import flows.rerank
from tasks.registry import TASKS


def test_the_tasks_of_the_planners_are_registered() -> None:
    named = {flows.chat.GENERATE, flows.rerank.SCORE, flows.rerank.EMBED, flows.rerank.RANK}
    named |= {flows.distribute.SPLIT, flows.embeddings.EMBED_PART, flows.embeddings.MERGE}
    named |= {flows.rerank.MERGE_SCORES, flows.rerank.COMPARE_PARTS}
    assert set(TASKS) >= named


def test_every_task_is_a_coroutine_function_with_its_docstring() -> None:
    for task in TASKS.values():
        assert inspect.iscoroutinefunction(task)
        assert inspect.getdoc(task)
