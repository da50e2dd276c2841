"""Windows at silences, and times at the edges of speech."""

import itertools

import pytest

from workers.engine.runtimes.speech import Span, clamped, joined, windows


def test_speech_that_touches_is_one() -> None:
    assert joined([Span(0, 1), Span(1.02, 2), Span(3, 4)]) == [Span(0, 2), Span(3, 4)]
    assert joined([]) == []


def test_what_fits_is_one_window() -> None:
    assert windows([Span(1, 5), Span(6, 29)]) == [Span(1, 29)]
    assert windows([]) == []


def test_a_window_ends_at_the_longest_silence_of_its_last_part() -> None:
    speech = [Span(0, 5), Span(9, 19), Span(21, 24), Span(24.5, 29), Span(29.5, 40)]
    # The silence after 5 s is longer still, but too early; the one after 19 s is the longest of the late ones.
    assert windows(speech) == [Span(0, 19), Span(21, 40)]


def test_speech_without_a_pause_is_one_long_window() -> None:
    assert windows([Span(0, 50), Span(51, 60)]) == [Span(0, 50), Span(51, 60)]


def test_no_late_silence_ends_it_where_it_is_full() -> None:
    assert windows([Span(0, 5), Span(6, 40)]) == [Span(0, 5), Span(6, 40)]


def test_windows_hold_all_speech_in_order() -> None:
    speech = [Span(place * 3.0, place * 3.0 + 2.5) for place in range(100)]
    found = windows(speech)
    assert found[0].start_s == 0
    assert found[-1].end_s == speech[-1].end_s
    assert all(window.end_s - window.start_s <= 30 for window in found)
    assert all(before.end_s < after.start_s for before, after in itertools.pairwise(found))
    assert all(
        any(window.start_s <= part.start_s and part.end_s <= window.end_s for window in found) for part in speech
    )


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (Span(0.6, 1.5), Span(1.0, 1.5)),  # it begins in the silence before the speech
        (Span(1.2, 2.6), Span(1.2, 2.0)),  # it ends in the silence behind it
        (Span(1.2, 1.5), Span(1.2, 1.5)),
        (Span(0.5, 0.8), Span(1.0, 1.0)),  # all of it lies before: no word is shorter than nothing
        (Span(5.5, 5.8), Span(5.5, 5.8)),  # no speech anywhere near
        (Span(2.2, 3.4), Span(3.0, 3.4)),
    ],
)
def test_times_are_clamped_to_where_somebody_speaks(word: Span, expected: Span) -> None:
    assert clamped(word, [Span(1.0, 2.0), Span(3.0, 4.0)]) == expected


def test_without_speech_nothing_is_moved() -> None:
    assert clamped(Span(1, 2), []) == Span(1, 2)
