"""A transcript in pieces is the transcript."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.hearing import Pieces, delta_event, done_event


@given(st.lists(st.text(alphabet="ab \n\u3000", max_size=6), max_size=8))
def test_joined_they_are_the_text_without_spaces_around_it(said: list[str]) -> None:
    pieces = Pieces()
    told = [pieces.add(each) for each in said]
    assert "".join(told) == pieces.text == "".join(said).strip()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([" One.", " Two."], ["One.", " Two."]),
        ([" ", "One. ", " ", "Two."], ["", "One.", "", "  Two."]),
        ([], []),
    ],
)
def test_a_space_waits_for_what_follows_it(said: list[str], told: list[str]) -> None:
    pieces = Pieces()
    assert [pieces.add(each) for each in said] == told


def test_the_events_are_openai_s() -> None:
    delta, done = delta_event(" é"), done_event(" é", {"usage": {"type": "tokens"}})
    assert delta.endswith(b"\n\n")
    assert json.loads(delta.removeprefix(b"data: ")) == {"type": "transcript.text.delta", "delta": " é"}
    assert json.loads(done.removeprefix(b"data: ")) == {
        "type": "transcript.text.done",
        "text": " é",
        "usage": {"type": "tokens"},
    }
