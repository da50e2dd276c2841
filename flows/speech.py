"""Speech: a text to an engine that speaks, sentence by sentence; a long one in parts, which are joined to one file.

The parts' sizes are counted in characters: how long a sentence takes goes with its length.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from sentencex import segment

from flows.distribute import Share, Spread, is_worth_splitting, merge_step, part_steps, shares
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry, ModelFormat

SPEAK: Final = TaskName("speak")
SPEAK_PART: Final = TaskName("speak_part")
SPEAK_FAR: Final = TaskName("speak_far")
JOIN: Final = TaskName("join_speech")

LEAST: Final = 6
"""A text of fewer sentences is not spread, unless the model says otherwise."""
PART_CHARS: Final = 4096
"""A longer text is cut in any case, where its answer is not sent as it is spoken: a failure then costs a part, not all
of it. OpenAI takes no longer ones."""
SENTENCE_CHARS: Final = 300
"""A longer sentence is cut where one would draw breath."""
_WINDOW_CHARS: Final = 1024
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_WORD: Final = re.compile(r"[^\W_]")
_QUOTES: Final = '"`«»‹›“”„‟‘‚‛「」『』〝〞〟｢｣《》〈〉＂＇'
_UNQUOTED: Final = dict.fromkeys(map(ord, _QUOTES))
_MOST_QUOTES: Final = 1 / 12
"""Of a text's characters. Where there are more, they are left out: they are not spoken."""
_MOST_SENTENCES: Final = 20_000
"""What of a text comes after so many is cut by its length alone."""
_USUAL_CHARS: Final = 60
"""Of a sentence."""
_BREATHS: Final = (",;:—–)，、；：", " ")
FLOWING: Final = frozenset({"mp3", "opus", "aac", "pcm"})
"""Formats whose head says no length: they are sent as they are spoken, unless the request says otherwise."""


def plan_speech(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request` is OpenAI's body, checked; unless a far service is to speak, `sentences` are those of its input."""
    demand = Demand(entry.name, Capability.TTS)
    if entry.format is ModelFormat.SERVICE:
        step = Step(StepId("speak"), SPEAK_FAR, {"request": request}, demand=demand)
        return Plan("speech", entry.name, (step,))
    spoken = _spoken(request)
    parts = cut(spoken, _small([_chars(spoken)]))
    if len(parts) == 1 or request.get("stream_format") is not None:
        streamed: dict[str, Json] = {"format": form_of(request), "stream": _stream_of(request)}
        step = Step(StepId("speak"), SPEAK, _inputs(request, spoken) | streamed, demand=demand)
        return Plan("speech", entry.name, (step,))
    steps = [
        Step(StepId(f"part-{number}"), SPEAK_PART, _inputs(request, part), demand=demand, items=_chars(part))
        for number, part in enumerate(parts, 1)
    ]
    return Plan("speech", entry.name, (*steps, _join(request, steps)))


def spread_speech(request: dict[str, Json], entry: ModelEntry, sites: Sequence[Site]) -> Plan | None:
    """The same request in parts, one an engine or more; None if it is better not spread."""
    spoken = _spoken(request)
    if not is_worth_splitting(len(spoken), entry, LEAST):
        return None
    given = shares(_chars(spoken), _in_chars(entry, _chars(spoken)), sites, LEAST)
    parts = cut(spoken, _small([share.items for share in given])) if given else []
    if len(parts) < 2:
        return None
    inputs = [_inputs(request, part) for part in parts]
    steps = part_steps(_own(parts, given), entry, Capability.TTS, SPEAK_PART, inputs)
    return Plan("speech", entry.name, (*steps, _join(request, steps)))


def count_sentences(request: dict[str, Json]) -> int:
    """How many sentences a checked request has."""
    return len(_spoken(request))


SPREAD_SPEECH: Final = Spread(count_sentences, LEAST, spread_speech)


def sentences(text: str) -> list[str]:
    """The sentences of a text that have something to be spoken in them, none long, without control characters."""
    found: list[str] = []
    for sentence in _segmented(_CONTROL.sub(" ", text)):
        found += [part for part in _breathed(" ".join(sentence.split())) if is_speakable(part)]
    return found


def _segmented(text: str) -> Iterator[str]:
    """The text's sentences, looked for in a little of it at a time: the search for the end of each quotation goes to
    the end of what it is given, so that of a long text it could take minutes."""
    rest, count = "", 0
    for at in range(0, len(text), _WINDOW_CHARS):
        window = rest + text[at : at + _WINDOW_CHARS]
        *whole, rest = _sentences_in(window) if count < _MOST_SENTENCES else [window]
        count += len(whole)
        yield from whole
        if len(rest) > _WINDOW_CHARS:  # no sentence any more; it is cut up in any case
            yield rest
            rest = ""
    yield rest


def _sentences_in(window: str) -> list[str]:
    """The sentences of a little text, the last one perhaps not whole."""
    if sum(map(window.count, _QUOTES)) > _MOST_QUOTES * len(window):
        window = window.translate(_UNQUOTED)
    return segment("en", window) or [""]


def is_speakable(text: str) -> bool:
    """Whether there is a letter, a digit or a symbol in it, such as an emoji; marks of punctuation are not spoken."""
    return _WORD.search(text) is not None or any(unicodedata.category(letter)[0] in "LNS" for letter in text)


def form_of(request: dict[str, Json]) -> str:
    """The format that a checked request asks for."""
    return str(request.get("response_format") or "mp3")


def cut(spoken: Sequence[str], sizes: Sequence[int]) -> list[list[str]]:
    """The sentences in a row, in parts of about these many characters; a part begins and ends with a sentence."""
    parts: list[list[str]] = []
    ends = list(accumulate(sizes))
    done = 0
    place = 0
    part: list[str] = []
    for sentence in spoken:
        while place < len(ends) - 1 and done + len(sentence) / 2 >= ends[place]:
            place += 1
            parts, part = ([*parts, part], []) if part else (parts, part)
        part.append(sentence)
        done += len(sentence)
    return [*parts, part] if part else parts


def _own(parts: Sequence[Sequence[str]], given: Sequence[Share]) -> list[Share]:
    """What each part has, in characters, for the pool in whose share its middle lies."""
    ends = list(accumulate(share.items for share in given))
    own: list[Share] = []
    first = 0
    for size in map(_chars, parts):
        home = next((share for share, end in zip(given, ends, strict=True) if first + size / 2 < end), given[-1])
        own.append(Share(home.pool, first, size))
        first += size
    return own


def _small(sizes: Sequence[int]) -> list[int]:
    """The same sizes, those that are too large for a part in several even ones."""
    made: list[int] = []
    for size in sizes:
        count = max(1, -(-size // PART_CHARS))
        made += [size // count + (place < size % count) for place in range(count)]
    return made


def _breathed(sentence: str) -> Iterator[str]:
    """A sentence in pieces that are not long, cut after a comma if there is one, else between words."""
    while len(sentence) > SENTENCE_CHARS:
        ends = (
            max((sentence.rfind(mark, SENTENCE_CHARS // 3, SENTENCE_CHARS) for mark in marks), default=-1)
            for marks in _BREATHS
        )
        end = next((end + 1 for end in ends if end >= 0), SENTENCE_CHARS)
        yield sentence[:end].strip()
        sentence = sentence[end:].strip()
    yield sentence


def _in_chars(entry: ModelEntry, chars: int) -> ModelEntry:
    """The model with its limit of sentences as one of characters: of few short sentences all are."""
    least = min(chars, (entry.distribute.min_items or LEAST) * _USUAL_CHARS)
    return entry.model_copy(update={"distribute": entry.distribute.model_copy(update={"min_items": max(2, least)})})


def _spoken(request: dict[str, Json]) -> list[str]:
    found = request["sentences"]
    assert isinstance(found, list)
    return [str(each) for each in found]


def _inputs(request: dict[str, Json], part: Sequence[str]) -> dict[str, Json]:
    return {"sentences": list(part), "voice": _voice_of(request), "speed": request.get("speed") or 1.0}


def _voice_of(request: dict[str, Json]) -> Json:
    """The voice's name, which may come as `{"id": …}`."""
    voice = request.get("voice")
    return voice["id"] if isinstance(voice, dict) else voice


def _stream_of(request: dict[str, Json]) -> Json:
    """How the answer is sent to a client that waits: `audio` or `sse` as it is spoken, None as a whole."""
    return request.get("stream_format") or ("audio" if form_of(request) in FLOWING else None)


def _chars(part: Sequence[str]) -> int:
    return sum(map(len, part))


def _join(request: dict[str, Json], steps: Sequence[Step]) -> Step:
    return merge_step(JOIN, {"format": form_of(request)}, steps)
