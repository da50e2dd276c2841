"""Lines of text on a page, and the blocks that they make. Geometry only: coordinates are pixels, from the top left."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.types import Json

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""
Polygon = tuple[tuple[int, int], ...]

_GAP: Final = 1.0
"""Largest distance between two lines of a block, in heights of the lower one of them."""
_SHARED: Final = 0.3
"""Least part of the narrower line's width that lies above or below the other."""
_HEIGHTS: Final = 1.8
"""Most that two lines of a block differ in height: a heading is no part of what stands below it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it was read; `confidence` is from 0 to 1, `polygon` its corners from the upper left on, clockwise."""

    text: str
    confidence: float
    polygon: Polygon

    @property
    def box(self) -> Box:
        """The upright rectangle around it."""
        across, down = zip(*self.polygon, strict=True)
        return min(across), min(down), max(across), max(down)


def describe_page(number: int, dimensions: tuple[int, int], lines: Sequence[Line], *, layout: bool) -> dict[str, Json]:
    """A page as it is answered; `dimensions` is its width and height in pixels, `number` counts from 1."""
    shown: list[Json] = [
        {
            "text": line.text,
            "confidence": round(line.confidence, 4),
            "box": list[Json](line.box),
            "polygon": [list[Json](corner) for corner in line.polygon],
        }
        for line in lines
    ]
    return {
        "page": number,
        "width": dimensions[0],
        "height": dimensions[1],
        "text": "\n".join(line.text for line in lines),
        "lines": shown,
        "regions": [_region(lines, members) for members in blocks(lines)] if layout else [],
    }


def blocks(lines: Sequence[Line]) -> list[list[int]]:
    """Which lines make one block: they stand below each other, close, and are of one size. In the order of their
    first lines."""
    block_of = list(range(len(lines)))
    boxes = [line.box for line in lines]
    for later in range(len(lines)):
        for earlier in range(later):
            if block_of[earlier] != block_of[later] and _belong(boxes[earlier], boxes[later]):
                old, new = sorted((block_of[earlier], block_of[later]), reverse=True)
                block_of = [new if block == old else block for block in block_of]
    found: dict[int, list[int]] = {}
    for line, block in enumerate(block_of):
        found.setdefault(block, []).append(line)
    return list(found.values())


def _belong(one: Box, other: Box) -> bool:
    upper, lower = sorted((one, other), key=lambda box: box[1])
    heights = upper[3] - upper[1], lower[3] - lower[1]
    if min(heights) <= 0 or max(heights) > _HEIGHTS * min(heights):
        return False
    if lower[1] - upper[3] > _GAP * min(heights) or lower[1] < (upper[1] + upper[3]) / 2:  # far, or beside it
        return False
    shared = min(upper[2], lower[2]) - max(upper[0], lower[0])
    return shared >= _SHARED * min(upper[2] - upper[0], lower[2] - lower[0])


def _region(lines: Sequence[Line], members: Sequence[int]) -> Json:
    boxes = [lines[member].box for member in members]
    around = (min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes))
    return {
        "type": "text",
        "box": list[Json](around),
        "text": "\n".join(lines[member].text for member in members),
        "confidence": round(sum(lines[member].confidence for member in members) / len(members), 4),
        "lines": list[Json](members),
    }
