"""The cut of a request into parts, and what a merge needs of it."""

from infra.errors import EngineFailed
from infra.types import Json
from tasks.types import TaskCall, TaskResult


async def split(call: TaskCall) -> TaskResult:
    """Which items each part has, from `inputs["sizes"]`: `[[first, count], …]`, in order."""
    sizes = call.inputs["sizes"]
    assert isinstance(sizes, list)
    return TaskResult(ranges_of(sizes))


def ranges_of(sizes: list[Json]) -> list[Json]:
    """`[[first, count], …]` for parts of these sizes."""
    ranges: list[Json] = []
    first = 0
    for size in sizes:
        assert isinstance(size, int)
        ranges.append([first, size])
        first += size
    return ranges


def parts_of(call: TaskCall) -> list[dict[str, Json]]:
    """The results of a merge's parts, in the order of the split; a split that tells more has its ranges as `ranges`.

    Raises:
        EngineFailed: one of them is no result of a part, as after a change of version between two tries.
    """
    told = call.inputs["split"]
    ranges = told["ranges"] if isinstance(told, dict) else told
    assert isinstance(ranges, list)
    parts: list[dict[str, Json]] = []
    for number in range(1, len(ranges) + 1):
        part = call.inputs[f"part-{number}"]
        if not isinstance(part, dict):
            raise EngineFailed(f"part-{number} of the request has no result that can be merged; send it again")
        parts.append(part)
    return parts
