"""The piper process from our side: with a program that behaves badly when told to, and with piper itself."""

import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from infra.errors import EngineFailed, LoadFailed
from tests.workers.engine.piper.voices import joe, the_piper
from workers.engine.piper import child
from workers.engine.piper.child import Speaker

PROGRAM = """
import json, os, struct, sys
H, out = struct.Struct(">cI"), sys.stdout.buffer
voice = os.path.basename(sys.argv[-2])
def write(kind, data): out.write(H.pack(kind, len(data)) + data); out.flush()
def started(): return len(open(count).read())
count = sys.argv[-2] + ".starts"
open(count, "a").write("x")
if voice == "bad": write(b"E", b'{"message": "no such voice"}'); sys.exit(1)
if voice == "dead": sys.exit(3)
if voice == "odd": write(b"R", b'{"rate_hz": 7}')
write(b"R", b'{"rate_hz": 16000, "speakers": {"a": 0, "b": 1}}')
while head := sys.stdin.buffer.read(5):
    asked = json.loads(sys.stdin.buffer.read(H.unpack(head)[1]))
    text = asked["text"]
    if text == "die" or (text == "die once" and started() == 1): os._exit(9)
    if text == "hang": import time; time.sleep(60)
    if text == "half": out.write(b"A\\0\\0\\0\\xff..."); out.flush(); os._exit(0)
    if text == "huge": out.write(b"A\\xff\\xff\\xff\\xff"); out.flush()
    if text == "odd": write(b"A", b"123")
    elif text == "error": write(b"E", b'{"message": "it is too hard"}')
    elif text == "nonsense": write(b"E", b"[]")
    else: write(b"A", b"%d;%g;" % (asked["speaker"], asked["length_scale"]) + text.encode().ljust(8))
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that runs our program whatever it is told to run."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} {program} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def speaker(python: Path, tmp_path: Path) -> Iterator[Speaker]:
    made = Speaker(python, tmp_path / "voice", 1)
    made.start()
    yield made
    made.close()


def starts(tmp_path: Path, voice: str = "voice") -> int:
    return len((tmp_path / f"{voice}.starts").read_text())


def test_a_sentence(speaker: Speaker) -> None:
    assert (speaker.facts.rate_hz, speaker.facts.speakers) == (16000, {"a": 0, "b": 1})
    assert speaker.say("hello", 1.5, 1) == b"1;1.5;hello   "


@pytest.mark.parametrize("text", ["die", "half", "huge", "odd", "nonsense"])
def test_a_process_that_is_of_no_use_is_started_anew(speaker: Speaker, tmp_path: Path, text: str) -> None:
    with pytest.raises(EngineFailed, match="failed twice"):
        speaker.say(text, 1.0)
    assert starts(tmp_path) == 2
    assert speaker.say("hello", 1.0) == b"0;1;hello   "
    assert starts(tmp_path) == 3


def test_one_death_is_nobody_s_trouble(speaker: Speaker, tmp_path: Path) -> None:
    assert speaker.say("die once", 1.0) == b"0;1;die once"
    assert speaker.pid is not None
    os.kill(speaker.pid, signal.SIGKILL)
    assert speaker.say("hello", 1.0) == b"0;1;hello   "
    assert starts(tmp_path) == 3


def test_a_process_that_hangs_is_ended(speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "SENTENCE_LIMIT_S", 0.3)
    with pytest.raises(EngineFailed, match="failed twice"):
        speaker.say("hang", 1.0)


def test_what_it_cannot_say_it_says(speaker: Speaker, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="it is too hard"):
        speaker.say("error", 1.0)
    with pytest.raises(EngineFailed, match="longer than"):
        speaker.say("x" * 100_000, 1.0)
    assert starts(tmp_path) == 1


@pytest.mark.parametrize(("voice", "words"), [("bad", "no such voice"), ("dead", "ended"), ("odd", "rate_hz")])
def test_a_voice_that_cannot_be_loaded(python: Path, tmp_path: Path, voice: str, words: str) -> None:
    with pytest.raises(LoadFailed, match=words):
        Speaker(python, tmp_path / voice, 1).start()
    with pytest.raises(LoadFailed, match=r"could not be started|ended"):
        Speaker(tmp_path / "no-python", tmp_path / voice, 1).start()


def test_it_ends_with_its_pipe(speaker: Speaker) -> None:
    pid = speaker.pid
    speaker.close()
    assert speaker.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid or 0, 0)


@pytest.mark.slow
def test_piper_itself() -> None:
    """The same sentence is the same sound, in every process; nonsense is silence; speed is speed."""
    first, second = Speaker(the_piper(), joe(), 1), Speaker(the_piper(), joe(), 1)
    first.start()
    second.start()
    try:
        assert (first.facts.rate_hz, first.facts.speakers) == (22050, {})
        text = "The river was calm today."
        said = first.say(text, 1.0)
        assert 1.2 < len(said) / 44100 < 2.5
        assert second.say("Another one before it.", 1.0)
        assert second.say(text, 1.0) == said
        assert len(first.say(text, 0.5)) < 0.7 * len(said) < len(said) < 0.7 * len(first.say(text, 2.0))
        for silent in ("", "...", "\0", " "):
            assert first.say(silent, 1.0) == b""
        assert first.say("[[ hello ]] \0 there", 1.0)
        loud = np.abs(np.frombuffer(said, "<i2").astype(int))
        assert (loud[0], loud[-1], int(loud.max())) == (0, 0, 32767)
    finally:
        began = time.monotonic()
        first.close()
        second.close()
        assert time.monotonic() - began < 3
