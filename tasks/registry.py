"""Every task by the name that plans know it by: the one registry."""

from tasks.generate import generate
from tasks.rerank import embed_and_compare, rank, score
from tasks.types import Task

TASKS: dict[str, Task] = {
    "generate": generate,
    "score": score,
    "embed": embed_and_compare,
    "rank": rank,
}
