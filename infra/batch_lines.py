"""Lines of a batch: the input, checked and read one at a time, and the results, appended as they come. All blocks."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Literal, NewType

import orjson
from pydantic import Field, ValidationError

from infra.batch_rows import BatchProblem
from infra.batch_usage import Spent
from infra.errors import InvalidRequest
from infra.files import full_disk_named, make_private_folder
from infra.types import Frozen, Json
from infra.wording import sentence

MOST_LINES: Final = 50_000
"""OpenAI's limit."""
LINE_BYTES: Final = 32 << 20
"""The longest line: what a request of its own may be by default."""
MOST_PROBLEMS: Final = 100
"""A file that is all wrong need not be told about line by line."""
Outcome = Literal["output", "error"]
CustomId = NewType("CustomId", str)
"""Its sender's word for one request of a batch."""


class BatchLine(Frozen):
    """One request of a batch."""

    custom_id: CustomId = Field(min_length=1, max_length=512)
    method: Literal["POST"]
    url: str
    body: dict[str, Json]


class BatchRefused(InvalidRequest):
    """The input is no batch; `problems` say where."""

    code = "invalid_batch"

    def __init__(self, message: str, problems: Sequence[BatchProblem] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


def checked(source: BinaryIO, endpoint: str) -> int:
    """How many requests there are.

    Raises:
        BatchRefused: lines that are no requests to that endpoint, or too many of them.
    """
    problems: list[BatchProblem] = []
    seen: set[CustomId] = set()
    count = 0
    for number, text in _numbered(source):
        count += 1
        problem = _problem(text, endpoint, seen)
        if problem is not None:
            problems.append(problem.model_copy(update={"line": number}))
        if count > MOST_LINES:
            problems.append(
                _wrong("too_many_lines", f"a batch has at most {MOST_LINES} requests: send several", number)
            )
        if count > MOST_LINES or len(problems) >= MOST_PROBLEMS:
            break
    if not count:
        problems.append(_wrong("empty_file", "the file has no requests: one JSON object a line", 1))
    if problems:
        first = problems[0]
        raise BatchRefused(f"the batch's input cannot be used: line {first.line}: {first.message}", problems)
    return count


def requests(source: BinaryIO) -> Iterator[BatchLine]:
    """The requests of an input that was checked, in order."""
    for _number, text in _numbered(source):
        yield BatchLine.model_validate_json(text)


@dataclass(slots=True)
class Results:
    """What the requests gave, a line each in `output.jsonl` or `error.jsonl` of a folder of the run's own.

    Lines outlive the process, so that another try does not do them again; a torn last one is cut off.
    """

    folder: Path
    done: set[CustomId] = field(default_factory=set)
    """The `custom_id` of every request that is done."""
    counts: dict[Outcome, int] = field(default_factory=lambda: {"output": 0, "error": 0})
    spent: Spent = field(default_factory=Spent)
    """What the answers have used."""
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> None:
        """Take over what an earlier try has done.

        Raises:
            DiskFull: no room for the folder.
        """
        make_private_folder(self.folder)
        for outcome, path in self.paths().items():
            if path.exists():
                self._take_over(outcome, path)

    def paths(self) -> dict[Outcome, Path]:
        """The two files."""
        return {"output": self.folder / "output.jsonl", "error": self.folder / "error.jsonl"}

    def add(self, outcome: Outcome, custom: CustomId, result: dict[str, Json]) -> None:
        """Append one result.

        Raises:
            DiskFull: no room; a part of the line may be there, which the next `open` cuts off.
        """
        path = self.paths()[outcome]
        line = orjson.dumps({"custom_id": custom} | result, option=orjson.OPT_APPEND_NEWLINE)
        with self._turn:
            with full_disk_named(path), path.open("ab") as file:
                file.write(line)
            self.done.add(custom)
            self.counts[outcome] += 1
            self.spent.add(result)

    def _take_over(self, outcome: Outcome, path: Path) -> None:
        whole = 0
        with path.open("rb+") as file:
            for line in file:
                try:
                    result = orjson.loads(line) if line.endswith(b"\n") else {}
                    custom = result.get("custom_id")
                except (orjson.JSONDecodeError, AttributeError):
                    custom = None
                if custom is None:
                    break
                self.spent.add(result)
                whole += len(line)
                self.done.add(custom)
                self.counts[outcome] += 1
            file.truncate(whole)


def _numbered(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty; of one that is too long only as much as shows that it is."""
    number = 0
    while line := source.readline(LINE_BYTES + 2):
        number += 1
        if line.strip():
            yield number, line
        if len(line) > LINE_BYTES:
            return


def _problem(text: bytes, endpoint: str, seen: set[CustomId]) -> BatchProblem | None:
    if len(text) > LINE_BYTES:
        return _wrong("line_too_long", f"the line is over {LINE_BYTES} bytes")
    try:
        line = BatchLine.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = sentence(place, first) if place else "the line is no JSON object: give one request a line"
        return _wrong("invalid_json_line", message, param=place or None)
    if line.url != endpoint:
        return _wrong("mismatched_endpoint", f"url is {line.url[:100]!r}; this batch is for {endpoint}", param="url")
    if line.custom_id in seen:
        return _wrong("duplicate_custom_id", f"custom_id {line.custom_id[:100]!r} stands twice", param="custom_id")
    seen.add(line.custom_id)
    return None


def _wrong(code: str, message: str, line: int | None = None, param: str | None = None) -> BatchProblem:
    return BatchProblem(code=code, message=message, line=line, param=param)
