"""Frames become a file that players know: as many as there were, at their pace, the same bytes each time."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import imageio_ffmpeg
import pytest

from infra.errors import EngineFailed, InvalidRequest
from infra.ffmpeg import ffmpeg
from infra.ffmpeg_video import encode_mp4
from infra.settings import inherited_environment

SIZE = (48, 32)


def frames(count: int, shape: tuple[int, int] = SIZE) -> Iterator[bytes]:
    """Grey, from dark to bright."""
    for number in range(count):
        yield bytes([20 * number % 256]) * (shape[0] * shape[1] * 3)


@pytest.mark.parametrize(("count", "fps", "seconds"), [(1, 16, 0.06), (9, 12, 0.75), (17, 29.97, 0.57)])
def test_all_frames_at_their_pace(tmp_path: Path, count: int, fps: float, seconds: float) -> None:
    (path := tmp_path / "a.mp4").write_bytes(encode_mp4(frames(count), SIZE, fps))
    found, took = imageio_ffmpeg.count_frames_and_secs(path)
    assert (found, took) == (count, pytest.approx(seconds, abs=0.011))


def test_the_index_comes_first_and_the_bytes_are_the_same_each_time() -> None:
    first = encode_mp4(frames(5), SIZE, 8)
    assert first[4:8] == b"ftyp"
    assert first.index(b"moov") < first.index(b"mdat")
    assert encode_mp4(frames(5), SIZE, 8) == first


def test_the_pixels_are_those_of_the_frames(tmp_path: Path) -> None:
    (path := tmp_path / "a.mp4").write_bytes(encode_mp4(frames(5), SIZE, 8))
    argv = [str(ffmpeg()), "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
    pixels = subprocess.run(argv, capture_output=True, check=True).stdout
    size_bytes = SIZE[0] * SIZE[1] * 3
    assert len(pixels) == 5 * size_bytes
    assert all(abs(pixels[number * size_bytes] - 20 * number) <= 3 for number in range(5))


def test_what_is_no_video() -> None:
    with pytest.raises(EngineFailed, match="could not make an MP4 of 47x31"):
        encode_mp4(frames(2, (47, 31)), (47, 31), 8)
    with pytest.raises(EngineFailed, match="it was ended"):
        encode_mp4(frames(10_000), SIZE, 8, time_limit_s=0.01)


def test_what_the_frames_raise_goes_on_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def broken() -> Iterator[bytes]:
        yield from frames(1)
        raise InvalidRequest("enough")

    with pytest.raises(InvalidRequest, match="enough"):
        encode_mp4(broken(), SIZE, 8)
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_while_it_writes_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom infra.ffmpeg_video import encode_mp4\n"
        "def frames():\n    yield bytes(48 * 32 * 3)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "encode_mp4(frames(), (48, 32), 8)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env=inherited_environment() | {"TMPDIR": str(tmp_path)}, check=False
    )
    assert process.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())
