"""Tests of the artifact: names and errors are others' words, and must stay words."""

import re

import pytest

from infra.prefect_child.markdown import code, describe_run, text
from tests.infra.prefect_child.records import attempt, fan_out, one_step


@pytest.mark.parametrize(
    ("words", "escaped"),
    [
        ("plain words, 1.5 s", "plain words, 1.5 s"),
        ("<script>alert(1)</script>", "\\<script\\>alert(1)\\</script\\>"),
        ("[a](javascript:b)", "\\[a\\](javascript:b)"),
        ("![x](https://evil.example/p.png)", "\\!\\[x\\](https\\://evil.example/p.png)"),
        ("see https://a.example and www.b.example", "see https\\://a.example and www\\.b.example"),
        ("a | b\nc\r\n# d", "a \\| b c \\# d"),
        ("back\\slash `tick`", "back\\\\slash \\`tick\\`"),
        ("&lt;", "\\&lt;"),
        ("nul\0line\u2028", "nul line "),
    ],
)
def test_words_stay_words(words: str, escaped: str) -> None:
    assert text(words) == escaped


@pytest.mark.parametrize(
    ("name", "shown"), [("m", "`m`"), ("a`b", "`a'b`"), ("a|b", "`a\\|b`"), ("a\nb", "`a b`"), ("", "")]
)
def test_a_name_is_code(name: str, shown: str) -> None:
    assert code(name) == shown


def test_the_table_has_a_row_for_each_try() -> None:
    run = one_step(at=1000.0)
    run.steps[0].attempts = [attempt(1000, 1000.5, error="it broke"), attempt(1000.5, 1001.5, pool="gpu")]
    rows = [line for line in describe_run(run).splitlines() if line.startswith("| `chat`")]
    why = "the least busy engine | service:far/m: it is paused"
    assert rows == [
        f"| `chat` chat | 1 | `cpu` | `cpu/m` | 0.500 | {why} | it broke |",
        f"| `chat` chat | 2 | `gpu` | `gpu/m` | 1.000 | {why} |  |",
    ]


def test_a_step_that_was_not_placed_is_there() -> None:
    run = fan_out(at=1000.0)
    run.steps[2].attempts, run.steps[2].status = [], "cancelled"
    assert "cancelled before it was placed" in describe_run(run)


def test_tokens_and_the_error_are_told() -> None:
    run = one_step("failed", at=1000.0, error="<b>no</b>", first_token_s=0.1)
    run.prompt_tokens = 7
    described = describe_run(run)
    assert "7 prompt tokens, 0 completion tokens." in described
    assert "**Error**: \\<b\\>no\\</b\\>" in described
    assert "first token after 0.100 s" in described


def test_shed_detail_is_told() -> None:
    run = one_step(at=1000.0)
    run.steps = []
    assert "spool was full" in describe_run(run)


def test_every_row_has_as_many_cells_whatever_the_names_are() -> None:
    run = one_step(at=1000.0, model="m|`|\n|")
    tried = run.steps[0].attempts[0]
    tried.reason = tried.error = "| a |\n| b |"
    rows = [line for line in describe_run(run).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}
