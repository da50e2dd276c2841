"""The counting itself: a wrong count would make the whole conformance run worthless."""

import pytest

from tests.conformance.judge import CaseResult, describe, judge, parse_exclusions

SENT = ("POST /v1/embeddings 200",)


def test_only_cases_that_reached_the_server_count_as_passed() -> None:
    verdict = judge([CaseResult("a", "passed", SENT), CaseResult("b", "passed"), CaseResult("c", "skipped")], {})
    assert (verdict.collected, verdict.reached, verdict.passed) == (3, 1, 1)
    assert [case.id for case in verdict.unsent] == ["b", "c"]
    assert verdict.good


def test_nothing_reached_is_not_good() -> None:
    assert not judge([CaseResult("a", "passed")], {}).good


@pytest.mark.parametrize("requests", [(), SENT])
def test_a_failure_counts_whether_it_reached_the_server_or_not(requests: tuple[str, ...]) -> None:
    verdict = judge([CaseResult("ok", "passed", SENT), CaseResult("a", "failed", requests, "boom")], {})
    assert [case.id for case in verdict.failed] == ["a"]
    assert not verdict.good
    assert "boom" in describe(verdict, {})


def test_an_exclusion_is_shown_with_its_reason_and_is_no_failure() -> None:
    exclusions = {"a": "stored completions do not exist here"}
    verdict = judge([CaseResult("ok", "passed", SENT), CaseResult("a", "failed", SENT)], exclusions)
    assert verdict.good
    assert verdict.passed == 1
    assert "a: stored completions do not exist here" in describe(verdict, exclusions)


@pytest.mark.parametrize("excluded", ["ok", "gone"])
def test_an_exclusion_of_a_passing_or_absent_case_is_stale(excluded: str) -> None:
    verdict = judge([CaseResult("ok", "passed", SENT), CaseResult("b", "passed", SENT)], {excluded: "why"})
    assert verdict.stale == (excluded,)
    assert not verdict.good


def test_exclusions_are_lines_of_id_and_reason() -> None:
    text = "# a comment\n\ntests/x.py::T::test_a[strict] # no such resource\n"
    assert parse_exclusions(text) == {"tests/x.py::T::test_a[strict]": "no such resource"}


@pytest.mark.parametrize("text", ["tests/x.py::test_a", "tests/x.py::test_a # ", "a # b\na # c"])
def test_an_exclusion_without_a_reason_or_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"reason|twice"):
        parse_exclusions(text)
