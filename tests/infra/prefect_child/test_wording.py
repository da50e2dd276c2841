"""Tests of the log lines of a run."""

import logging

from infra.prefect_child.wording import LONGEST, log_lines, tokens
from tests.infra.prefect_child.records import attempt, fan_out, one_step


def test_a_placement_says_where_why_and_what_was_passed_over() -> None:
    when, level, line = next(log_lines(one_step(at=1000.0)))
    assert (when, level) == (1000.0, logging.INFO)
    assert line == "chat on cpu/m (pool cpu): the least busy engine; passed over: service:far/m: it is paused"


def test_a_step_of_several_is_named() -> None:
    assert next(log_lines(fan_out(at=1000.0)))[2].startswith("step part-0 (embed) on cpu/m")


def test_what_needed_no_engine_was_done_in_the_front() -> None:
    run = one_step(at=1000.0)
    run.steps[0].attempts[0].engine = run.steps[0].attempts[0].pool = None
    run.steps[0].attempts[0].passed_over = []
    assert next(log_lines(run))[2] == "chat in the front: the least busy engine"


def test_a_failed_try_and_the_next_one_are_told() -> None:
    run = one_step(at=1000.0)
    run.steps[0].attempts = [attempt(1000, 1000.5, error="it broke"), attempt(1000.5, 1001.5, pool="gpu")]
    lines = list(log_lines(run))
    assert (lines[1][1], lines[1][2]) == (logging.WARNING, "chat ended on cpu/m after 0.500 s: it broke")
    assert lines[2][2].startswith("chat, try 2 on gpu/m")


def test_the_last_line_has_the_times_and_the_tokens() -> None:
    run = one_step(at=1000.0, queue_wait_s=0.25, first_token_s=0.5)
    run.prompt_tokens, run.completion_tokens, run.cached_tokens = 12, 40, 3
    assert list(log_lines(run))[-1] == (
        1001.5,
        logging.INFO,
        "completed after 1.500 s, 0.250 s of it waiting for a slot, first token after 0.500 s, "
        "12 prompt tokens (3 cached), 40 completion tokens",
    )


def test_a_failure_ends_with_its_error() -> None:
    _, level, line = list(log_lines(one_step("failed", at=1000.0, error="no engine answered")))[-1]
    assert level == logging.ERROR
    assert line == "failed after 1.500 s: no engine answered"


def test_a_running_record_has_no_last_line() -> None:
    assert len(list(log_lines(one_step("running", at=1000.0)))) == 1


def test_a_long_error_is_cut() -> None:
    assert len(list(log_lines(one_step("failed", at=1000.0, error="x" * 99_999)))[-1][2]) == LONGEST + 1


def test_no_tokens_are_no_words() -> None:
    assert tokens(one_step(at=1000.0)) == ""
