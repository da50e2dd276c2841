"""Speech with piper: `/audio/speech`, a list of sentences to a WAV that is sent as it is spoken.

The process of this runtime is ours; piper, which is under the GPL, runs in a process of its own below it
(`workers.engine.piper`), so that no code of ours is linked with it and a voice that dies takes nothing with it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from infra.errors import InvalidRequest, LoadFailed
from infra.types import Json
from infra.wav import head
from workers.engine.piper.child import Speaker
from workers.engine.piper.install import require_piper
from workers.engine.runtimes.protocol import Ask, Handler, Reply
from workers.wire import EngineLaunch

SPEEDS: Final = (0.25, 4.0)
MOST_SENTENCE_CHARS: Final = 4000
DEFAULT_VOICE: Final = "default"
OPENAI_VOICES: Final = (
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse",
)  # fmt: skip
"""OpenAI's own names: clients have to name one, and mean no more by it than the usual voice."""


class Piper:
    """One voice. `/audio/speech`: `{input: [sentence, …], voice, speed}` to a WAV; its head says no length."""

    def __init__(self) -> None:
        self._speaker: Speaker | None = None

    def load(self, launch: EngineLaunch) -> None:
        """See `Runtime.load`. The model's path is a voice, or a folder with one in it.

        Raises:
            NotInstalled: piper is not.
        """
        python = require_piper()
        path = launch.entry.path
        assert path is not None
        self._speaker = Speaker(python, voice_file(path), launch.threads)
        self._speaker.start()

    def routes(self) -> Mapping[str, Handler]:
        """See `Runtime.routes`."""
        return {"/audio/speech": self._answer}

    def _answer(self, ask: Ask) -> Reply:
        assert self._speaker is not None
        sentences, speed = _sentences(ask), _speed(ask)
        speaker = _speaker_of(ask.body.get("voice"), self._speaker.facts.speakers)
        return Reply(self._spoken(ask, sentences, 1 / speed, speaker), "audio/wav")

    def _spoken(self, ask: Ask, sentences: list[str], length_scale: float, speaker: int) -> Iterator[bytes]:
        """The WAV's head with the first sentence, then each as it is spoken."""
        assert self._speaker is not None
        begun = head(self._speaker.facts.rate_hz, None)
        for number, sentence in enumerate(sentences):
            ask.check()
            ask.progress.tell("speaking", number, len(sentences))
            samples = self._speaker.say(sentence, length_scale, speaker)
            if samples:
                yield begun + samples
                begun = b""
        ask.progress.tell("speaking", len(sentences), len(sentences))
        if begun:
            yield begun


def voice_file(path: Path) -> Path:
    """The voice at a path: itself, or the one in a folder.

    Raises:
        LoadFailed: there is none, or it has no description beside it.
    """
    if path.is_dir():
        found = sorted(path.glob("*.onnx"))
        if len(found) != 1:
            raise LoadFailed(f"{path} has {len(found)} voices (*.onnx) in it: name one of them")
        path = found[0]
    if not path.is_file() or not Path(f"{path}.json").is_file():
        raise LoadFailed(f"{path} is no piper voice: that is a file .onnx, and beside it .onnx.json")
    return path


def _sentences(ask: Ask) -> list[str]:
    given = ask.body.get("input")
    texts = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    if not isinstance(given, list) or len(texts) < len(given) or not texts:
        raise InvalidRequest("'input' is a list of sentences", param="input")
    if max(map(len, texts)) > MOST_SENTENCE_CHARS:
        raise InvalidRequest(f"a sentence has more than {MOST_SENTENCE_CHARS} characters", param="input")
    return texts


def _speed(ask: Ask) -> float:
    speed = ask.body.get("speed", 1.0)
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not SPEEDS[0] <= speed <= SPEEDS[1]:
        raise InvalidRequest(f"'speed' is {SPEEDS[0]:g} to {SPEEDS[1]:g}", param="speed")
    return float(speed)


def _speaker_of(voice: Json, speakers: Mapping[str, int]) -> int:
    """The number of a voice's speaker. OpenAI's names mean the first one.

    Raises:
        InvalidRequest: there is none of that name; the message has those that there are.
    """
    if isinstance(voice, str) and voice in speakers:
        return speakers[voice]
    if voice is None or voice == DEFAULT_VOICE or voice in OPENAI_VOICES:
        return min(speakers.values(), default=0)
    names = [DEFAULT_VOICE, *speakers, *OPENAI_VOICES]
    raise InvalidRequest(
        f"there is no voice {str(voice)[:60]!r}: {', '.join(names[:40])} (OpenAI's names mean {DEFAULT_VOICE!r})",
        param="voice",
        code="unknown_voice",
    )
