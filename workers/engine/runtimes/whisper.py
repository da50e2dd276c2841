"""Whisper through faster-whisper (CTranslate2): `/audio/transcriptions`, `/audio/translations`, `/audio/windows`.

The first two answer OpenAI's verbose_json, whatever form is asked for: the forms are made by whoever joins the parts.
With `stream` they answer OpenAI's events, a delta for each segment as soon as it is heard.
Speech is found first (silero's detector, which faster-whisper brings), then read in windows that end in silences, so
that nothing is made up where nobody speaks, and times are clamped to where somebody does. The third answers the windows
alone, for whoever gives them to several engines.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import orjson
from faster_whisper import WhisperModel
from faster_whisper.transcribe import Segment, Word
from faster_whisper.vad import VadOptions, get_speech_timestamps
from numpy.typing import NDArray

from infra.errors import InvalidRequest, LoadFailed
from infra.ffmpeg import RATE_HZ, decode
from infra.types import Json
from workers.engine.hearing import EVENTS_TYPE, Pieces, delta_event, done_event
from workers.engine.runtimes.protocol import Ask, Handler, Reply
from workers.engine.runtimes.speech import WINDOW_S, Span, clamped, joined, windows
from workers.wire import EngineLaunch

_BLOCK_S: Final = 300
"""Speech is looked for in so much at once: the detector takes ten times its memory."""
_LONGEST_SPEECH_S: Final = 28.0
_PAD_S: Final = 0.2
_DETECTOR: Final = VadOptions(min_silence_duration_ms=250, speech_pad_ms=30, max_speech_duration_s=_LONGEST_SPEECH_S)
_FALLBACKS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Temperatures that are tried one after the other when a reading repeats itself or is unlikely."""
_LEAST_SHARE: Final = 0.6
"""Of a window's length: it may end so early for the sake of a longer silence."""
_ENGLISH: Final = "en"
_FULL_SCALE: Final = 32768.0
_TOKENS_A_SECOND: Final = 50
"""What the encoder makes of sound: 1500 positions of its 30 seconds."""

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    task: str
    language: str | None
    prompt: str | None
    temperatures: tuple[float, ...]
    times: bool


@dataclass(slots=True)
class Heard:
    """What has been heard so far, with the times of the whole recording."""

    language: str | None
    segments: list[dict[str, Json]] = field(default_factory=list)
    words: list[Json] = field(default_factory=list)
    tokens: int = 0

    def add(self, segment: Segment, offset_s: float, speech: Sequence[Span]) -> None:
        """Enter a segment of the window that begins at `offset_s`, and its words."""
        spans: list[Span] = []
        for word in segment.words or ():
            span = clamped(_span(word, offset_s), speech)
            spans.append(span)
            self.words.append({"word": word.word.strip(), "start": round(span.start_s, 3), "end": round(span.end_s, 3)})
        whole = Span(spans[0].start_s, spans[-1].end_s) if spans else clamped(_span(segment, offset_s), speech)
        self.tokens += len(segment.tokens)
        self.segments.append(
            {
                "id": len(self.segments),
                "seek": round(offset_s * 100),
                "start": round(whole.start_s, 3),
                "end": round(whole.end_s, 3),
                "text": segment.text,
                "tokens": [int(token) for token in segment.tokens],
                "temperature": float(segment.temperature or 0.0),
                "avg_logprob": float(segment.avg_logprob),
                "compression_ratio": float(segment.compression_ratio),
                "no_speech_prob": float(segment.no_speech_prob),
            }
        )


class Whisper:
    """One model in memory."""

    def __init__(self) -> None:
        self._model: WhisperModel | None = None

    def load(self, launch: EngineLaunch) -> None:
        """See `Runtime.load`."""
        path = launch.entry.path
        if path is None or not (path / "model.bin").is_file():
            raise LoadFailed(f"{path} is no folder with a model.bin that CTranslate2 can read")
        try:
            self._model = WhisperModel(
                str(path),
                device="cpu",
                compute_type="int8",
                cpu_threads=launch.threads,
                num_workers=launch.slots,
                local_files_only=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise LoadFailed(f"{path} cannot be loaded: {error}") from error

    def routes(self) -> Mapping[str, Handler]:
        """See `Runtime.routes`."""
        return {
            "/audio/transcriptions": lambda ask: self._answer(ask, "transcribe"),
            "/audio/translations": lambda ask: self._answer(ask, "translate"),
            "/audio/windows": self._windows,
        }

    def _windows(self, ask: Ask) -> Reply:
        """Where the form's one file can be cut, into windows of at most `window_s` seconds; its length and language."""
        window_s, language = _number(ask, "window_s") or WINDOW_S, _text(ask, "language")
        sound = _sound(ask)
        found = windows(_speech(sound, ask), window_s, _LEAST_SHARE * window_s)
        if found and not language:
            language = self._language(_floats(sound[slice(*_reach(found[0]))]))
        body = {
            "duration": _seconds(sound),
            "language": language,
            "windows": [[round(edge_s, 3) for edge_s in window] for window in found],
        }
        return Reply(orjson.dumps(body))

    def _language(self, sound: Samples) -> str:
        """The language that is spoken."""
        assert self._model is not None
        return self._model.detect_language(sound)[0] if self._model.model.is_multilingual else _ENGLISH

    def _answer(self, ask: Ask, task: str) -> Reply:
        """The text of the form's one file: as verbose_json, or in events as it is heard."""
        wanted = _wanted(ask, task)
        sound = _sound(ask)
        if _text(ask, "stream") == "true":
            return Reply(self._events(ask, wanted, sound), EVENTS_TYPE)
        heard = Heard(wanted.language)
        for _segment in self._segments(ask, wanted, sound, heard):
            continue
        body: dict[str, Json] = {
            "task": task,
            "language": heard.language or "",
            "duration": _seconds(sound),
            "text": "".join(str(segment["text"]) for segment in heard.segments).strip(),
            "segments": list[Json](heard.segments),
        }
        if wanted.times:
            body["words"] = heard.words
        return Reply(orjson.dumps(body))

    def _events(self, ask: Ask, wanted: Wanted, sound: NDArray[np.int16]) -> Iterator[bytes]:
        """The same text, a delta a segment, and at the end the whole with what it has taken."""
        heard, pieces = Heard(wanted.language), Pieces()
        for segment in self._segments(ask, wanted, sound, heard):
            if piece := pieces.add(segment.text):
                yield delta_event(piece)
        duration_s = _seconds(sound)
        given, made = math.ceil(duration_s * _TOKENS_A_SECOND), heard.tokens
        usage: dict[str, Json] = {
            "type": "tokens",
            "input_tokens": given,
            "input_token_details": {"audio_tokens": given},
            "output_tokens": made,
            "total_tokens": given + made,
        }
        yield done_event(pieces.text, {"duration": duration_s, "usage": usage})

    def _segments(self, ask: Ask, wanted: Wanted, sound: NDArray[np.int16], heard: Heard) -> Iterator[Segment]:
        """Each segment when it is heard, entered in `heard` before."""
        speech, total_s = _speech(sound, ask), round(len(sound) / RATE_HZ)
        for window in windows(speech):
            ask.check()
            ask.progress.tell("transcribing", round(window.start_s), total_s)
            found, heard.language = self._read(sound, window, wanted, heard.language)
            for segment in found:
                ask.check()
                heard.add(segment, max(0.0, window.start_s - _PAD_S), speech)
                yield segment

    def _read(
        self, sound: NDArray[np.int16], window: Span, wanted: Wanted, language: str | None
    ) -> tuple[Iterator[Segment], str]:
        """What is said in one window, and in which language; the first window settles that for all."""
        assert self._model is not None
        part = _floats(sound[slice(*_reach(window))])
        try:
            segments, info = self._model.transcribe(
                part,
                language=language,
                task=wanted.task,
                temperature=list(wanted.temperatures),
                initial_prompt=wanted.prompt,
                condition_on_previous_text=False,
                word_timestamps=wanted.times,
            )
        except ValueError as error:
            raise InvalidRequest(f"the model does not take this: {error}", param="language") from error
        return iter(segments), info.language


def _wanted(ask: Ask, task: str) -> Wanted:
    chosen = _number(ask, "temperature")
    granularities = ask.body.get("timestamp_granularities[]")
    return Wanted(
        task=task,
        language=_text(ask, "language") or None,
        prompt=_text(ask, "prompt") or None,
        temperatures=(chosen,) if chosen else _FALLBACKS,
        times=bool(granularities),
    )


def _number(ask: Ask, name: str) -> float:
    """A field's number; 0 without one."""
    try:
        return float(_text(ask, name) or 0.0)
    except ValueError as error:
        raise InvalidRequest(f"'{name}' must be a number", param=name) from error


def _text(ask: Ask, name: str) -> str:
    """The value of a text field, the last one if there are several."""
    values = ask.body.get(name)
    return str(values[-1]) if isinstance(values, list) and values else ""


def _sound(ask: Ask) -> NDArray[np.int16]:
    """The samples of the form's one file."""
    files = [file for file in ask.files if file.part == "file"]
    if len(files) != 1:
        raise InvalidRequest("send one audio file, in the part 'file'", param="file")
    return np.frombuffer(decode(files[0].data), "<i2")


def _reach(window: Span) -> tuple[int, int]:
    """The samples that are read for a window."""
    return max(0, int((window.start_s - _PAD_S) * RATE_HZ)), int((window.end_s + _PAD_S) * RATE_HZ)


def _speech(sound: NDArray[np.int16], ask: Ask) -> list[Span]:
    """Where somebody speaks."""
    found: list[Span] = []
    block = _BLOCK_S * RATE_HZ
    for first in range(0, len(sound), block):
        ask.check()
        for part in get_speech_timestamps(_floats(sound[first : first + block]), _DETECTOR, RATE_HZ):
            found.append(Span((first + part["start"]) / RATE_HZ, (first + part["end"]) / RATE_HZ))
    return joined(found)


def _floats(sound: NDArray[np.int16]) -> Samples:
    return sound.astype(np.float32) / np.float32(_FULL_SCALE)


def _seconds(sound: NDArray[np.int16]) -> float:
    return round(len(sound) / RATE_HZ, 3)


def _span(part: Segment | Word, offset_s: float) -> Span:
    """Its times in the whole recording, as Python's own numbers."""
    return Span(float(part.start) + offset_s, float(part.end) + offset_s)
