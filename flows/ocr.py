"""Text recognition: documents in parts, by file and by page, and one merge that puts them together in order.

One document of few pages is one step, without a merge.
"""

from collections.abc import Sequence
from typing import Final

from flows.distribute import Spread, merge_step, part_steps, shares
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry

LEAST: Final = 2
"""Fewer pages are not spread, unless the model says otherwise: one takes an engine seconds."""
READ: Final = TaskName("ocr")
READ_PART: Final = TaskName("ocr_part")
MERGE: Final = TaskName("merge_ocr")

PART_PAGES: Final = 8
"""A longer document is cut in any case: a failure then costs a part, not all of it."""
MOST_PARTS: Final = 32
"""Each part that runs waits for a slot of its own; the line for them is not endless."""

Piece = tuple[int, int, int]
"""Pages of one file: its index, the first and the last page, counted from 1."""


def plan_ocr(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request`: `{files: [{name, pages, blob} | {name, error}], batch, dpi, layout}`, checked."""
    files = _files(request)
    pages = [_pages(file) for file in files]
    parts = cut(pages, usual_sizes(pages))
    demand = Demand(entry.name, Capability.OCR)
    inputs = [_inputs(request, files, part) for part in parts]
    if not request["batch"] and len(parts) == 1:
        read = Step(StepId("read"), READ, inputs[0], demand=demand, items=sum(pages))
        return Plan("ocr", entry.name, (read,))
    steps = [
        Step(StepId(f"part-{number}"), READ_PART, own, demand=demand, items=_size(part))
        for number, (own, part) in enumerate(zip(inputs, parts, strict=True), 1)
    ]
    return Plan("ocr", entry.name, (*steps, _merge(request, files, steps)))


def spread_ocr(request: dict[str, Json], entry: ModelEntry, sites: Sequence[Site]) -> Plan | None:
    """The same request in parts, one an engine; None if it is better not spread."""
    files = _files(request)
    given = shares(count_pages(request), entry, sites, LEAST)
    if not given:
        return None
    parts = cut([_pages(file) for file in files], [share.items for share in given])
    own = [_inputs(request, files, part) for part in parts]
    steps = part_steps(given, entry, Capability.OCR, READ_PART, own)
    return Plan("ocr", entry.name, (*steps, _merge(request, files, steps)))


def count_pages(request: dict[str, Json]) -> int:
    """How many pages a checked request has."""
    return sum(map(_pages, _files(request)))


SPREAD_OCR: Final = Spread(count_pages, LEAST, spread_ocr)


def usual_sizes(pages: Sequence[int]) -> list[int]:
    """A part for each file, and for every few pages of a long one; larger ones before there are too many."""
    a_part = PART_PAGES
    while True:
        sizes = [size for count in pages if count for size in _even(count, a_part)]
        if len(sizes) <= MOST_PARTS:
            return sizes
        if a_part >= max(pages):  # many files of few pages
            return _even(sum(pages), -(-sum(pages) // MOST_PARTS))
        a_part *= 2


def cut(pages: Sequence[int], sizes: Sequence[int]) -> list[list[Piece]]:
    """The pages of all files in a row, cut into parts of these sizes, which are together all pages."""
    assert sum(sizes) == sum(pages)
    parts: list[list[Piece]] = []
    file, done = 0, 0
    for size in sizes:
        part: list[Piece] = []
        left = size
        while left:
            if done == pages[file]:
                file, done = file + 1, 0
                continue
            taken = min(left, pages[file] - done)
            part.append((file, done + 1, done + taken))
            left, done = left - taken, done + taken
        parts.append(part)
    return parts


def _even(count: int, most: int) -> list[int]:
    """`count` in as few parts of at most `most` as possible, none more than one larger than another."""
    parts = -(-count // most)
    return [count // parts + (index < count % parts) for index in range(parts)]


def _files(request: dict[str, Json]) -> list[dict[str, Json]]:
    files = request["files"]
    assert isinstance(files, list)
    return [file for file in files if isinstance(file, dict)]


def _pages(file: dict[str, Json]) -> int:
    """The pages of a file; none of one that was refused."""
    pages = file.get("pages", 0)
    assert isinstance(pages, int)
    return pages


def _size(part: Sequence[Piece]) -> int:
    return sum(last - first + 1 for _file, first, last in part)


def _inputs(request: dict[str, Json], files: Sequence[dict[str, Json]], part: Sequence[Piece]) -> dict[str, Json]:
    """What a part reads, and how."""
    pieces: list[Json] = [
        {"file": file, "name": files[file]["name"], "blob": files[file]["blob"], "first": first, "last": last}
        for file, first, last in part
    ]
    return {"pieces": pieces, "dpi": request["dpi"], "layout": request["layout"]}


def _merge(request: dict[str, Json], files: Sequence[dict[str, Json]], steps: Sequence[Step]) -> Step:
    """The merge knows of the files what it shows of them: not their bytes."""
    shown: list[Json] = [{name: file[name] for name in ("name", "pages", "error") if name in file} for file in files]
    return merge_step(MERGE, {"files": shown, "batch": request["batch"]}, steps)
