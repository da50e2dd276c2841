"""The program that speaks: what of it needs no piper. With piper it is tried by `test_child.py`."""

import io
import json

import numpy as np
import pytest

from workers.engine.piper.speaker import HEADER, MOST_PHONEMES, Refused, cut, finished, noise, plain, read_asked, write


def asked(**fields: object) -> io.BytesIO:
    data = json.dumps({"text": "Hi.", "length_scale": 1.0, "speaker": 0} | fields).encode()
    return io.BytesIO(HEADER.pack(b"S", len(data)) + data)


def test_a_sentence_is_read() -> None:
    assert read_asked(asked(text="Ho.")) == {"text": "Ho.", "length_scale": 1.0, "speaker": 0}
    assert read_asked(io.BytesIO()) is None


@pytest.mark.parametrize(
    "stream",
    [
        asked(text=7),
        asked(length_scale=0.01),
        asked(length_scale=99.0),
        asked(length_scale="1"),
        asked(speaker="first"),
        io.BytesIO(HEADER.pack(b"Q", 2) + b"{}"),
        io.BytesIO(HEADER.pack(b"S", 1 << 30)),
    ],
)
def test_what_was_not_agreed_is_not_read(stream: io.BytesIO) -> None:
    with pytest.raises(Refused):
        read_asked(stream)


def test_a_frame() -> None:
    stream = io.BytesIO()
    write(stream, b"A", b"data")
    assert stream.getvalue() == b"A\0\0\0\4data"


def test_phonemes_are_cut_between_words() -> None:
    word = [*"phoneme", " "]
    parts = cut(word * 100)
    assert [letter for part in parts for letter in part] == word * 100
    assert all(len(part) <= MOST_PHONEMES for part in parts)
    assert all(part[0] == " " for part in parts[1:])
    assert [len(part) for part in cut(["a"] * (MOST_PHONEMES + 1))] == [MOST_PHONEMES, 1]
    assert cut([]) == []


def test_noise_goes_with_the_sentence() -> None:
    first = noise([1, 2, 3], 0, 100)
    assert np.array_equal(first, noise([1, 2, 3], 0, 100))
    assert not np.array_equal(first, noise([1, 2, 4], 0, 100))
    assert not np.array_equal(first, noise([1, 2, 3], 1, 100))
    assert abs(float(np.std(noise([5], 0, 100_000))) - 1) < 0.02


def test_samples_are_loud_with_soft_ends() -> None:
    made = np.frombuffer(finished(np.full(22050, 0.2, np.float32), 22050), "<i2")
    assert (made[0], made[-1], made[1000]) == (0, 0, 32767)
    assert np.all(np.abs(np.diff(made.astype(int))) < 1000)


@pytest.mark.parametrize("samples", [[], [0.0, 0.0], [float("nan")], [float("inf"), 1.0]])
def test_what_is_no_sound_is_nothing(samples: list[float]) -> None:
    assert finished(np.array(samples, np.float32), 22050) == b""


def test_phonemes_cannot_be_given_in_a_text() -> None:
    for text in ("[[h@l@U]]", "[[[x]]]", "[[[[", "a [ [[ b", "\0[["):
        assert "[[" not in plain(text)
        assert "\0" not in plain(text)
    assert plain("a [b] c") == "a [b] c"
