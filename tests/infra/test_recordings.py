"""How long a recording is, and pieces of it whose samples are those of the whole."""

import asyncio
import io
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from infra.errors import EngineFailed, InvalidRequest
from infra.ffmpeg import RATE_HZ, SAMPLE_BYTES, decode
from infra.recordings import cut_out, measure
from tests.infra.test_ffmpeg import CONTAINERS
from tests.sounds import encoded, encoded_file, wav


def opened(tmp_path: Path, data: bytes) -> BinaryIO:
    path = tmp_path / "recording"
    path.write_bytes(data)
    return path.open("rb")


@pytest.mark.parametrize("kind", CONTAINERS)
async def test_the_length_of_a_common_container(tmp_path: Path, kind: str) -> None:
    with opened(tmp_path, encoded(*CONTAINERS[kind], seconds=3.0)) as file:
        assert await measure(file) == pytest.approx(3.0, abs=0.06)
        assert await measure(file) == pytest.approx(3.0, abs=0.06)  # wherever the first has left off


async def test_the_length_is_that_of_what_is_there(tmp_path: Path) -> None:
    whole = wav(4.0)
    with opened(tmp_path, whole[: len(whole) // 2]) as file:
        assert await measure(file) == pytest.approx(2.0, abs=0.1)
    with opened(tmp_path, encoded_file(tmp_path / "a.m4a", seconds=3.0)) as file:
        assert await measure(file) == pytest.approx(3.0, abs=0.06)


async def test_what_has_no_length(tmp_path: Path) -> None:
    for data in (b"OggS" + bytes(1000), b"fLaC" + bytes(1000), encoded("-c:v", "libx264", "-f", "matroska",
                 source="color=size=64x64", seconds=0.2)):  # fmt: skip
        with opened(tmp_path, data) as file:
            assert await measure(file) is None
    with opened(tmp_path, encoded("-f", "flac", seconds=60.0)) as file:
        assert await measure(file, time_limit_s=0.0) is None
    with opened(tmp_path, b"#EXTM3U\nfile:///etc/passwd\n") as file, pytest.raises(InvalidRequest):
        await measure(file)


@pytest.mark.parametrize("kind", [*CONTAINERS, "m4a"])
async def test_a_piece_has_the_samples_of_the_whole(tmp_path: Path, kind: str) -> None:
    """Exactly, though the times in the file are rounded, or set off."""
    source = "sine=frequency=440:beep_factor=4"
    data = encoded_file(tmp_path / "a.m4a", seconds=5.0) if kind == "m4a" else encoded(
        *CONTAINERS[kind], source=source, seconds=5.0
    )  # fmt: skip
    whole = decode(data)
    start_s, end_s = 1.2345, 3.1
    with opened(tmp_path, data) as file, await cut_out(file, start_s, end_s) as piece:
        samples = decode(piece.read())
    first, last = (round(seconds * RATE_HZ) * SAMPLE_BYTES for seconds in (start_s, end_s))
    assert samples == whole[first:last]


async def test_a_piece_up_to_the_end(tmp_path: Path) -> None:
    with opened(tmp_path, wav(2.0)) as file, await cut_out(file, 1.5, 9.0) as piece:
        assert len(decode(piece.read())) == pytest.approx(0.5 * RATE_HZ * SAMPLE_BYTES, abs=64)


async def test_what_cannot_be_cut(tmp_path: Path) -> None:
    with opened(tmp_path, b"OggS" + bytes(1000)) as file, pytest.raises(EngineFailed, match="no sound could be cut"):
        await cut_out(file, 0.0, 1.0)
    long = encoded("-f", "flac", source="anullsrc=r=8000:cl=mono", seconds=3000)
    with opened(tmp_path, long) as file, pytest.raises(EngineFailed, match=r"from 2900.0 s to 2990.0 s"):
        await cut_out(file, 2900.0, 2990.0, time_limit_s=0.01)


async def test_whoever_is_cancelled_ends_the_program(tmp_path: Path) -> None:
    long = encoded("-f", "flac", source="anullsrc=r=8000:cl=mono", seconds=7000)
    with opened(tmp_path, long) as file:
        cutting = asyncio.create_task(cut_out(file, 6900.0, 6990.0))
        while not programs():
            await asyncio.sleep(0.01)
        cutting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cutting
    assert not programs()


def programs() -> list[psutil.Process]:
    """Children of this process that run ffmpeg."""
    return [each for each in psutil.Process().children() if "ffmpeg" in each.name()]


async def test_it_reads_a_file_and_nothing_else() -> None:
    with pytest.raises(io.UnsupportedOperation):
        await measure(io.BytesIO(wav(1.0)))
