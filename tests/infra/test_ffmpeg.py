"""Sound out of every common container, and nothing out of anything else."""

import os
import tempfile
from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from infra.ffmpeg import RATE_HZ, SAMPLE_BYTES, decode, ffmpeg
from tests.sounds import encoded, encoded_file, wav

CONTAINERS = {
    "wav": ("-f", "wav"),
    "mp3": ("-f", "mp3"),
    "flac": ("-f", "flac"),
    "ogg": ("-c:a", "libvorbis", "-f", "ogg"),
    "opus": ("-c:a", "libopus", "-f", "ogg"),
    "aac": ("-f", "adts"),
    "webm": ("-c:a", "libopus", "-f", "webm"),
    "mkv": ("-f", "matroska"),
}


def seconds_of(samples: bytearray) -> float:
    return len(samples) / SAMPLE_BYTES / RATE_HZ


def temporary_files() -> set[str]:
    return set(os.listdir(tempfile.gettempdir()))


def test_the_program_is_there() -> None:
    assert ffmpeg().is_file()


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_common_container(kind: str) -> None:
    samples = decode(encoded(*CONTAINERS[kind]))
    assert seconds_of(samples) == pytest.approx(2.0, abs=0.06)
    assert max(samples[1::2]) > 0  # there is sound in it


@pytest.mark.parametrize("kind", ["m4a", "mp4", "mov", "caf", "aiff"])
def test_a_container_whose_index_may_stand_at_its_end(tmp_path: Path, kind: str) -> None:
    assert seconds_of(decode(encoded_file(tmp_path / f"a.{kind}"))) == pytest.approx(2.0, abs=0.06)


def test_sound_at_any_rate_and_in_any_number_of_channels() -> None:
    assert seconds_of(decode(wav(0.5, rate_hz=44100))) == pytest.approx(0.5, abs=0.01)
    assert seconds_of(decode(encoded("-ac", "6", "-f", "flac"))) == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("kind", ["wav", "flac", "aac", "webm", "mkv"])
@pytest.mark.parametrize("share", [0.5, 0.97])
def test_what_is_cut_off_is_refused(kind: str, share: float) -> None:
    data = wav(2.0) if kind == "wav" else encoded(*CONTAINERS[kind])
    with pytest.raises(InvalidRequest, match="cut off"):
        decode(data[: int(len(data) * share)])


def test_half_of_a_file_with_its_index_at_the_end(tmp_path: Path) -> None:
    data = encoded_file(tmp_path / "a.m4a")
    with pytest.raises(InvalidRequest, match="cannot be decoded"):
        decode(data[: len(data) // 2])


@pytest.mark.parametrize(
    "data",
    [
        b"RIFF\x24\x00\x00\x00WAVE",
        b"OggS" + bytes(1000),
        b"fLaC" + bytes(1000),
        b"\xff\xfb\x90\x00" * 1000,
        b"\x00\x00\x00\x18ftypM4A " + bytes(500),
        b"ID3\x04\x00\x00\x00\x00\x00\x00" + b"#EXTM3U\nfile:///etc/passwd\n",
    ],
)
def test_what_only_begins_like_sound(data: bytes) -> None:
    before = temporary_files()
    with pytest.raises(InvalidRequest, match="cannot be decoded") as refused:
        decode(data)
    assert (refused.value.param, refused.value.code) == ("file", "invalid_audio")
    assert temporary_files() <= before


def test_a_film_without_sound() -> None:
    data = encoded("-c:v", "libx264", "-f", "matroska", source="color=size=64x64", seconds=0.2)
    with pytest.raises(InvalidRequest, match="no audio in it"):
        decode(data)


def test_a_playlist_never_reaches_the_program() -> None:
    with pytest.raises(InvalidRequest, match="no audio file of a known kind"):
        decode(b"#EXTM3U\nfile:///etc/passwd\n")


def test_a_long_recording_in_a_small_file_is_not_unpacked() -> None:
    data = encoded("-f", "flac", source="anullsrc=r=8000:cl=mono", seconds=600)
    assert len(data) < 200_000
    with pytest.raises(InvalidRequest, match="longer than the 5 minutes") as refused:
        decode(data, most_seconds=300)
    assert refused.value.code == "audio_too_long"


def test_a_program_that_takes_too_long_is_ended() -> None:
    data = encoded("-f", "flac", source="anullsrc=r=8000:cl=mono", seconds=3000)
    with pytest.raises(InvalidRequest, match="cannot be decoded"):
        decode(data, time_limit_s=0.05)
