"""Where speech is in a recording, as pairs of seconds; what follows from it for windows and for the times of words.

Pure: the detector of speech itself is the runtime's (`workers.engine.runtimes.whisper`).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

WINDOW_S: Final = 30.0
"""What whisper looks at at once."""
_LEAST_S: Final = 18.0
"""A window that ends in a longer silence is worth being shorter, but not shorter than this."""
_JOIN_S: Final = 0.05
_AHEAD_S: Final = 1.0
"""A word whose start lies further before the speech than this is not the one that is spoken there."""


class Span(NamedTuple):
    """From one second to another."""

    start_s: float
    end_s: float


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same speech, with what touches made one: detectors that work in blocks cut it at their edges."""
    found: list[Span] = []
    for span in spans:
        if found and span.start_s - found[-1].end_s <= _JOIN_S:
            found[-1] = Span(found[-1].start_s, span.end_s)
        else:
            found.append(span)
    return found


def windows(speech: Sequence[Span], window_s: float = WINDOW_S, least_s: float = _LEAST_S) -> list[Span]:
    """The speech in windows of at most `window_s`, each ending at the longest silence of its last part.

    Speech without a pause in it may make a longer one.
    """
    found: list[Span] = []
    first = 0
    while first < len(speech):
        start_s = speech[first].start_s
        last = first
        while last + 1 < len(speech) and speech[last + 1].end_s - start_s <= window_s:
            last += 1
        if last + 1 < len(speech):
            last = _longest_silence(speech, first, last, start_s + least_s)
        found.append(Span(start_s, speech[last].end_s))
        first = last + 1
    return found


def _longest_silence(speech: Sequence[Span], first: int, last: int, not_before_s: float) -> int:
    """The part after which the silence is longest, among those that end late enough."""
    late = [place for place in range(first, last + 1) if speech[place].end_s >= not_before_s] or [last]
    return max(late, key=lambda place: speech[place + 1].start_s - speech[place].end_s)


def clamped(span: Span, speech: Sequence[Span]) -> Span:
    """A word's times with what lies in a silence moved to the edge of the speech: whisper begins words early."""
    start_s, end_s = span
    after = next((part for part in speech if part.end_s > start_s), None)
    if after is not None and start_s < after.start_s < end_s + _AHEAD_S:
        start_s = after.start_s
    before = next((part for part in reversed(speech) if part.start_s < end_s), None)
    if before is not None and start_s < before.end_s < end_s:
        end_s = before.end_s
    return Span(start_s, max(start_s, end_s))
