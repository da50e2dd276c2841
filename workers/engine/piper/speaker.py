"""The process that speaks with piper: run by the Python of piper's own environment, which knows nothing of CoderAI.

`python -I speaker.py VOICE THREADS`, VOICE being the `.onnx` of a voice, its `.onnx.json` beside it. What is asked
comes on standard input, one frame a sentence, and what is said goes to standard output, in frames: a letter, four bytes
of length (big-endian), and so many bytes.

    in   S  {"text": "…", "length_scale": 1.0, "speaker": 0}
    out  R  {"rate_hz": 22050, "speakers": {"name": 0}}     once, when the voice is loaded
         A  16-bit samples, one channel, little-endian      one for each S; none if there is nothing to be heard
         E  {"message": "…"}                                instead of an R or A

It ends when its standard input does. The same sentence always sounds the same: a voice draws random numbers for its
rhythm and its timbre, and here they are drawn from a generator that the sentence itself sets.
"""

import hashlib
import importlib
import json
import math
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]

HEADER: Final = struct.Struct(">cI")
MOST_ASKED_BYTES: Final = 64 << 10
MOST_PHONEMES: Final = 300
"""Spoken at once: what a voice takes of memory grows with the square of it."""
SCALES: Final = (0.1, 10.0)
_FADE_S: Final = 0.003
"""So that nothing clicks where one sentence is put after another."""
_FRAMES_A_PHONEME: Final = 16
_MOST_TRIES: Final = 4
_WIDEST: Final = 192
"""Channels of the noise that a voice asks for, at the most: of piper's `medium` and `high`."""
_PHONEME_TYPES: Final = ("espeak", "text")
"""The others need models that are not here."""


class Refused(Exception):
    """What is asked cannot be done; the message says why."""


class Voice:
    """A voice, loaded.

    Raises:
        Refused: it is not one that can be spoken with.
    """

    def __init__(self, path: Path, threads: int) -> None:
        config = json.loads(Path(f"{path}.json").read_bytes())
        kind = config.get("phoneme_type", "espeak")
        if kind not in _PHONEME_TYPES:
            raise Refused(f"voices with phonemes of the type {kind!r} are not served")
        model, self._noises = steady(path.read_bytes())
        library = importlib.import_module("piper")
        self._config = importlib.import_module("piper.config").PiperConfig.from_dict(config)
        self._session = _session(model, threads)
        self._voice = library.PiperVoice(config=self._config, session=self._session)

    @property
    def described(self) -> dict[str, Any]:
        """What the other side is told of it."""
        speakers = self._config.speaker_id_map if self._config.num_speakers > 1 else {}
        return {"rate_hz": self._config.sample_rate, "speakers": dict(speakers)}

    def say(self, text: str, length_scale: float, speaker: int) -> bytes:
        """A sentence as 16-bit samples; none if there is nothing to be heard in it."""
        parts = [part for spoken in self._voice.phonemize(plain(text)) for part in cut(spoken)]
        return b"".join(self._said(part, length_scale, speaker) for part in parts)

    def _said(self, phonemes: list[str], length_scale: float, speaker: int) -> bytes:
        ids = self._voice.phonemes_to_ids(phonemes)
        if not any(phoneme.isalnum() for phoneme in phonemes):
            return b""
        config = self._config
        asked: dict[str, npt.NDArray[Any]] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([config.noise_scale, length_scale * config.length_scale, config.noise_w_scale], "f4"),
        }
        if config.num_speakers > 1:
            asked["sid"] = np.array([speaker], np.int64)
        return finished(self._run(asked, ids, length_scale), config.sample_rate)

    def _run(self, asked: dict[str, npt.NDArray[Any]], ids: list[int], length_scale: float) -> Samples:
        """What the voice makes of it. How much noise it needs is known when it has it: too little is an error."""
        count = _WIDEST * _FRAMES_A_PHONEME * math.ceil((len(ids) + 16) * max(1.0, length_scale))
        for _ in range(_MOST_TRIES - 1):
            try:
                return self._ran(asked, ids, count)
            except Exception as error:  # the library's own, which has no name before it is imported
                if type(error).__name__ not in ("Fail", "InvalidArgument", "RuntimeException"):
                    raise
                count *= 4
        return self._ran(asked, ids, count)

    def _ran(self, asked: dict[str, npt.NDArray[Any]], ids: list[int], count: int) -> Samples:
        noises = {name: noise(ids, place, count) for place, name in enumerate(self._noises)}
        zero = {"noise_start": np.zeros(1, np.int64)} if noises else {}
        made = self._session.run(None, {**asked, **noises, **zero})[0]
        return np.asarray(made, np.float32).reshape(-1)


def steady(model: bytes) -> tuple[bytes, list[str]]:
    """The voice's network with its random numbers as inputs, and the names of these.

    Each becomes as many numbers of a flat input as are needed, from `noise_start` on, in the form that is needed.
    """
    onnx = importlib.import_module("onnx")
    made = onnx.load_model_from_string(model)
    helper = onnx.helper
    nodes: list[Any] = []
    names: list[str] = []
    for node in made.graph.node:
        if node.op_type != "RandomNormalLike":
            nodes.append(node)
            continue
        name = f"noise_{len(names)}"
        names.append(name)
        nodes += [
            helper.make_node("Shape", [node.input[0]], [f"{name}_shape"]),
            helper.make_node("ReduceProd", [f"{name}_shape"], [f"{name}_count"], keepdims=1),
            helper.make_node("Slice", [name, "noise_start", f"{name}_count"], [f"{name}_flat"]),
            helper.make_node("Reshape", [f"{name}_flat", f"{name}_shape"], [node.output[0]]),
        ]
    if not names:
        return model, []
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    for name in names:
        made.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None]))
    made.graph.input.append(helper.make_tensor_value_info("noise_start", onnx.TensorProto.INT64, [1]))
    return bytes(made.SerializeToString()), names


def plain(text: str) -> str:
    """A text in which piper finds no phonemes: it takes what stands in [[ ]] for them."""
    return re.sub(r"\[(?=\[)", "[ ", text.replace("\0", " "))


def noise(ids: list[int], place: int, count: int) -> Samples:
    """`count` normal random numbers, the same for the same phonemes."""
    told = hashlib.sha256(json.dumps([place, *ids]).encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(told[:16], "big")))
    return generator.standard_normal(count, np.float32)


def cut(phonemes: list[str]) -> list[list[str]]:
    """The phonemes in parts that are spoken at once, each but the last ending where a word does, if one does."""
    parts: list[list[str]] = []
    rest = phonemes
    while len(rest) > MOST_PHONEMES:
        space = next((at for at in range(MOST_PHONEMES, MOST_PHONEMES // 2, -1) if rest[at] == " "), MOST_PHONEMES)
        parts.append(rest[:space])
        rest = rest[space:]
    return [*parts, rest] if rest else parts


def finished(samples: Samples, rate_hz: int) -> bytes:
    """As loud as it can be, as piper makes it, with soft ends, in 16 bits."""
    loudest = float(np.max(np.abs(samples), initial=0.0))
    if loudest < 1e-8 or not math.isfinite(loudest):
        return b""
    count = min(len(samples) // 2, round(_FADE_S * rate_hz))
    made = samples / np.float32(loudest)
    ramp = np.linspace(0.0, 1.0, count, dtype=np.float32)
    made[:count] *= ramp
    made[len(made) - count :] *= ramp[::-1]
    return (made * np.float32(32767.0)).astype("<i2").tobytes()


def read_asked(stream: BinaryIO) -> dict[str, Any] | None:
    """The next sentence; None at the end.

    Raises:
        Refused: it is none.
    """
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    kind, size_bytes = HEADER.unpack(head)
    if kind != b"S" or size_bytes > MOST_ASKED_BYTES:
        raise Refused("this is no frame with a sentence")
    asked = json.loads(stream.read(size_bytes))
    text, scale, speaker = asked["text"], asked["length_scale"], asked["speaker"]
    good = isinstance(text, str) and isinstance(scale, float) and SCALES[0] <= scale <= SCALES[1]
    if not good or not isinstance(speaker, int):
        raise Refused("a sentence has a text, a length_scale of 0.1 to 10, and a speaker")
    return {"text": text, "length_scale": scale, "speaker": speaker}


def serve(voice: Voice, asked: BinaryIO, said: BinaryIO) -> None:
    """Say what is asked, until nothing more comes.

    Raises:
        Refused, ValueError, KeyError: what comes is not what was agreed.
    """
    write(said, b"R", json.dumps(voice.described).encode())
    while (sentence := read_asked(asked)) is not None:
        try:
            write(said, b"A", voice.say(**sentence))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # one sentence fails, not the voice
            write(said, b"E", _told(error))


def write(stream: BinaryIO, kind: bytes, data: bytes) -> None:
    """One frame."""
    stream.write(HEADER.pack(kind, len(data)) + data)
    stream.flush()


def _told(error: Exception) -> bytes:
    return json.dumps({"message": f"{type(error).__name__}: {error}"[:1000]}).encode()


def _session(model: bytes, threads: int) -> Any:
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(model, sess_options=options, providers=["CPUExecutionProvider"])


def main(arguments: list[str]) -> int:
    """Load the voice and serve. What libraries print goes to standard error: standard output has frames alone."""
    said = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        voice = Voice(Path(arguments[0]), int(arguments[1]))
    except Exception as error:  # noqa: BLE001  # whatever it is, the other side is told
        write(said, b"E", _told(error))
        return 1
    serve(voice, sys.stdin.buffer, said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
