"""A batch's input line by line, and results that outlive whoever wrote them."""

import io
from pathlib import Path

import orjson
import pytest

from infra import batch_lines
from infra.batch_lines import BatchRefused, CustomId, Results, checked, requests

URL = "/v1/chat/completions"
BODY = {"model": "m", "messages": []}


def line(custom: str = "a", **changes: object) -> bytes:
    return orjson.dumps({"custom_id": custom, "method": "POST", "url": URL, "body": BODY} | changes) + b"\n"


def test_a_good_input_with_empty_lines_and_no_last_newline() -> None:
    source = io.BytesIO(line("a") + b"\n  \n" + line("b").rstrip())
    assert checked(source, URL) == 2
    source.seek(0)
    assert [one.custom_id for one in requests(source)] == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "code", "number", "param"),
    [
        (b"", "empty_file", 1, None),
        (b"\n\n", "empty_file", 1, None),
        (line() + b"{\n", "invalid_json_line", 2, None),
        (line() + b"[]\n", "invalid_json_line", 2, None),
        (b"\xff\xfe\n", "invalid_json_line", 1, None),
        (line(custom_id=1), "invalid_json_line", 1, "custom_id"),
        (line(""), "invalid_json_line", 1, "custom_id"),
        (line(method="GET"), "invalid_json_line", 1, "method"),
        (line(body="x"), "invalid_json_line", 1, "body"),
        (line(more=1), "invalid_json_line", 1, "more"),
        (line(url="/v1/embeddings"), "mismatched_endpoint", 1, "url"),
        (line() + line(), "duplicate_custom_id", 2, "custom_id"),
    ],
)
def test_what_is_refused(data: bytes, code: str, number: int, param: str | None) -> None:
    with pytest.raises(BatchRefused) as caught:
        checked(io.BytesIO(data), URL)
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.param) == (code, number, param)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lines, "MOST_LINES", 2)
    with pytest.raises(BatchRefused, match="at most 2"):
        checked(io.BytesIO(line("a") + line("b") + line("c")), URL)
    monkeypatch.setattr(batch_lines, "LINE_BYTES", 200)
    with pytest.raises(BatchRefused) as caught:
        checked(io.BytesIO(line("a") + line("b" * 300) + line("c")), URL)
    assert [problem.code for problem in caught.value.problems] == ["line_too_long"]
    with pytest.raises(BatchRefused) as caught:
        checked(io.BytesIO(b"{\n" * 1000), URL)
    assert len(caught.value.problems) <= batch_lines.MOST_PROBLEMS + 1


def test_results_are_taken_over_and_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    first = Results(tmp_path / "batch")
    first.open()
    first.add("output", CustomId("a"), {"response": {"body": {"model": "m", "usage": {"prompt_tokens": 3}}}})
    first.add("error", CustomId("b"), {"error": {}})
    with first.paths()["output"].open("ab") as file:
        file.write(b'{"custom_id": "c", "respo')
    second = Results(tmp_path / "batch")
    second.open()
    assert second.done == {"a", "b"}
    assert second.counts == {"output": 1, "error": 1}
    assert second.spent == first.spent
    assert (second.spent.model, second.spent.usage.total_tokens) == ("m", 3)
    second.add("output", CustomId("c"), {"response": {}})
    lines = second.paths()["output"].read_bytes().splitlines()
    assert [orjson.loads(each)["custom_id"] for each in lines] == ["a", "c"]
