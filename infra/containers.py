"""What kind of sound file something is, by its first bytes alone: names and media types are its sender's claims."""

import functools
from typing import Final

from infra.errors import InvalidRequest

HEAD_BYTES: Final = 1 << 20
"""As much of a file as may have to be seen: a tag with a picture may stand before the sound."""
_STARTS: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (4, b"ftyp", "mov"),
    (4, b"moov", "mov"),
    (4, b"wide", "mov"),
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (0, b"#!AMR", "amr"),
    (0, b"caff", "caf"),
    (0, b".snd", "au"),
)
_IN_A_FRAME: Final = (
    (b"RIFF", b"WAVE", "wav"),
    (b"RF64", b"WAVE", "wav"),
    (b"FORM", b"AIFF", "aiff"),
    (b"FORM", b"AIFC", "aiff"),
)


def sniff(head: bytes) -> str | None:
    """ffmpeg's name of the container that begins like this (a few hundred bytes are enough); None for anything else."""
    if head.startswith(b"ID3") and len(head) >= 10:
        return _behind_id3(head)
    for outer, inner, demuxer in _IN_A_FRAME:
        if head.startswith(outer) and head[8:12] == inner:
            return demuxer
    for at, magic, demuxer in _STARTS:
        if head[at : at + len(magic)] == magic:
            return demuxer
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    if head[1] & 0xF6 == 0xF0:  # ADTS: layer 0
        return "aac"
    layer, bitrate, rate = head[1] & 0x06, head[2] & 0xF0, head[2] & 0x0C
    return "mp3" if layer and bitrate != 0xF0 and rate != 0x0C else None


def _behind_id3(head: bytes) -> str:
    """What follows a tag of ID3: mp3, unless it is seen to be something else."""
    length = functools.reduce(lambda sum_, byte: sum_ << 7 | byte & 0x7F, head[6:10], 0)
    rest = head[10 + length :]
    return (sniff(rest) if rest and not rest.startswith(b"ID3") else None) or "mp3"


def require_sound(head: bytes) -> str:
    """ffmpeg's name of the container that begins like this.

    Raises:
        InvalidRequest: it is no sound or film of a known kind.
    """
    demuxer = sniff(head)
    if demuxer is None:
        what = "this is no audio file of a known kind" if head else "the audio file is empty"
        raise InvalidRequest(
            f"{what}: send wav, mp3, flac, ogg, opus, m4a, mp4, aac, webm, mkv, aiff, amr or caf",
            param="file",
            code="invalid_audio",
        )
    return demuxer
