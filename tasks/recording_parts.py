"""A long recording in parts: where it is cut, one part on its engine, and the transcript that all of them make."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from infra.errors import EngineFailed
from infra.recordings import cut_out
from infra.types import Json
from tasks.split import parts_of, ranges_of
from tasks.transcribe import answered, ask, open_recording, sent
from tasks.types import TaskCall, TaskResult
from workers.transport import FilePart

PATH: Final = "/audio/windows"
_EDGE_S: Final = 0.5
"""Silence that a part has around what is said in it, where there is so much."""
_HALVINGS: Final = 40


class Window(NamedTuple):
    """A stretch of a recording in which somebody speaks, in seconds."""

    start_s: float
    end_s: float


async def cut_recording(call: TaskCall) -> TaskResult:
    """Ask the engine for the windows of `inputs["file"]`, and give them to parts of about `inputs["sizes"]` seconds:
    `{ranges: [[first, size], …], pieces: [[from, until] | None, …], duration, language}`, a piece for each part.

    Raises:
        PayloadGone, EngineFailed, UpstreamRefused: as `tasks.transcribe`.
    """
    file, language, sizes = call.inputs["file"], call.inputs["language"], call.inputs["sizes"]
    assert isinstance(file, dict)
    assert isinstance(sizes, list)
    fields = [("window_s", str(call.inputs["window_s"]))]
    fields += [("language", str(language))] if language else []
    engine = call.leased()
    with open_recording(file, call.stores) as content:
        status, body = await call.transport.upload(engine, PATH, fields, sent(file, content), mark=call.mark)
    answer = answered(engine, PATH, status, body)
    windows, duration_s = [Window(*_edges(each)) for each in _list(answer.get("windows"))], answer.get("duration")
    if not isinstance(duration_s, int | float):
        raise EngineFailed(f"{engine.id} did not say how long the recording is")
    shares = [float(size) for size in sizes if isinstance(size, int)]
    pieces: list[Json] = [list(piece) if piece else None for piece in allot(windows, shares, duration_s)]
    cut: dict[str, Json] = {"ranges": ranges_of(sizes), "pieces": pieces, "duration": duration_s}
    return TaskResult(cut | {"language": answer.get("language") or ""}, units=duration_s)


async def transcribe_part(call: TaskCall) -> TaskResult:
    """What is said in the piece of part `inputs["number"]`, with the times of that piece; nothing, if it has none.

    Raises:
        PayloadGone, EngineFailed, UpstreamRefused: as `tasks.transcribe`.
    """
    file, fields, cut, number = (call.inputs[name] for name in ("file", "fields", "split", "number"))
    assert isinstance(file, dict)
    assert isinstance(fields, list)
    assert isinstance(cut, dict)
    assert isinstance(number, int)
    piece = _list(cut["pieces"])[number - 1]
    if piece is None:
        return TaskResult({"text": ""}, items=0)
    start_s, end_s = _edges(piece)
    named = any(isinstance(pair, list) and pair[0] == "language" for pair in fields)
    language: list[Json] = [["language", cut["language"]]] if cut["language"] and not named else []
    with open_recording(file, call.stores) as content:
        sound = await cut_out(content, start_s, end_s)
    with sound:
        answer = await ask(call, [*fields, *language], FilePart("file", f"part-{number}.flac", "audio/flac", sound))
    return TaskResult(answer, items=round(end_s - start_s))


async def merge_transcripts(call: TaskCall) -> TaskResult:
    """The transcript of the whole recording, with its times, from those of its parts.

    Raises:
        EngineFailed: a part has no result that can be merged.
    """
    cut = call.inputs["split"]
    assert isinstance(cut, dict)
    texts: list[str] = []
    segments: list[Json] = []
    words: list[Json] = []
    for part, piece in zip(parts_of(call), _list(cut["pieces"]), strict=True):
        if piece is None:
            continue
        start_s, _end_s = _edges(piece)
        found = [_shifted(each, start_s) for each in _list(part.get("segments", []))]
        texts.append(_said(part, found))
        segments += [{**each, "id": len(segments) + place} for place, each in enumerate(found)]
        words += [_shifted(each, start_s) for each in _list(part.get("words", []))]
    whole: dict[str, Json] = {
        "task": call.inputs["task"],
        "language": cut["language"],
        "duration": cut["duration"],
        "text": "".join(texts).strip(),
        "segments": segments,
        "words": words,
    }
    return TaskResult(whole)


def allot(windows: Sequence[Window], shares: Sequence[float], duration_s: float) -> list[tuple[float, float] | None]:
    """From when until when each part hears, for windows in their order: so that whoever takes longest, for its share,
    takes as short as can be. A part reaches into the silence around its windows, but not to the next one."""
    low, high = 0.0, 1.0 + sum(window.end_s - window.start_s for window in windows) / min(shares)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = sum(_filled(windows, shares, middle)) == len(windows)
        low, high = (low, middle) if enough else (middle, high)
    pieces: list[tuple[float, float] | None] = []
    first = 0
    for count in _filled(windows, shares, high):
        pieces.append(_reach(windows, first, first + count - 1, duration_s) if count else None)
        first += count
    return pieces


def _filled(windows: Sequence[Window], shares: Sequence[float], pace: float) -> list[int]:
    """How many windows each part takes, one part after the other, if it has `pace` seconds for each of its share."""
    counts: list[int] = []
    at = 0
    for share in shares:
        left, first = pace * share, at
        while at < len(windows) and (length := windows[at].end_s - windows[at].start_s) <= left:
            left, at = left - length, at + 1
        counts.append(at - first)
    return counts


def _reach(windows: Sequence[Window], first: int, last: int, duration_s: float) -> tuple[float, float]:
    before_s = windows[first - 1].end_s if first else 0.0
    after_s = windows[last + 1].start_s if last + 1 < len(windows) else duration_s
    start_s, end_s = windows[first].start_s, windows[last].end_s
    start_s = max(start_s - _EDGE_S, (before_s + start_s) / 2 if first else 0.0)
    end_s = min(end_s + _EDGE_S, (end_s + after_s) / 2 if last + 1 < len(windows) else duration_s)
    return round(start_s, 3), round(max(start_s, end_s), 3)


def _said(part: dict[str, Json], segments: Sequence[dict[str, Json]]) -> str:
    """A part's text as it goes on from the one before: segments know whether with a space."""
    text = str(part["text"])
    joined = "".join(str(segment.get("text", "")) for segment in segments)
    return joined if joined.strip() == text.strip() else f" {text.strip()}"


def _shifted(timed: Json, start_s: float) -> dict[str, Json]:
    """A segment or a word with the times of the whole recording.

    Raises:
        EngineFailed: it has none.
    """
    start, end = (timed.get("start"), timed.get("end")) if isinstance(timed, dict) else (None, None)
    if not isinstance(timed, dict) or not isinstance(start, int | float) or not isinstance(end, int | float):
        raise EngineFailed("a part of this recording has no result that can be merged; send it again")
    moved: dict[str, Json] = {**timed, "start": round(start + start_s, 3), "end": round(end + start_s, 3)}
    seek = timed.get("seek")
    return moved | {"seek": seek + round(start_s * 100)} if isinstance(seek, int) else moved


def _edges(piece: Json) -> tuple[float, float]:
    if isinstance(piece, list) and len(piece) == 2:
        start_s, end_s = piece
        if isinstance(start_s, int | float) and isinstance(end_s, int | float):
            return start_s, end_s
    raise EngineFailed("the cut of this recording cannot be read; send it again")


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise EngineFailed("a part of this recording has no result that can be merged; send it again")
    return value
