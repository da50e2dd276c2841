"""Sounds for tests, made by ffmpeg or by hand."""

import io
import math
import struct
import subprocess
import wave
from pathlib import Path

from infra.ffmpeg import ffmpeg


def wav(seconds: float = 1.0, rate_hz: int = 16000, hz: float = 440.0) -> bytes:
    """A tone as a WAV; silence with `hz` 0."""
    count = int(seconds * rate_hz)
    samples = [int(8000 * math.sin(2 * math.pi * hz * place / rate_hz)) for place in range(count)]
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, rate_hz, 0, "NONE", "NONE"))
        sound.writeframes(struct.pack(f"<{count}h", *samples))
    return file.getvalue()


def encoded(*options: str, seconds: float = 2.0, source: str = "sine=frequency=440") -> bytes:
    """A sound in the container that `options` of ffmpeg name."""
    argv = [str(ffmpeg()), "-loglevel", "error", "-f", "lavfi", "-i", source, "-t", str(seconds), *options, "pipe:1"]
    return subprocess.run(argv, capture_output=True, check=True).stdout


def encoded_file(path: Path, seconds: float = 2.0) -> bytes:
    """The same, where the container cannot be written to a pipe; `path` says by its ending which."""
    argv = [
        str(ffmpeg()),
        "-loglevel",
        "error",
        "-f",
        "lavfi",
        "-i",
        "sine=frequency=440",
        "-t",
        str(seconds),
        str(path),
    ]
    subprocess.run(argv, capture_output=True, check=True)
    return path.read_bytes()
