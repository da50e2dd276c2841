"""What a file is, by its first bytes."""

import pytest

from infra.containers import require_sound, sniff
from infra.errors import InvalidRequest


@pytest.mark.parametrize(
    ("head", "demuxer"),
    [
        (b"RIFF\xff\xff\xff\xffWAVEfmt ", "wav"),
        (b"RF64\xff\xff\xff\xffWAVEds64", "wav"),
        (b"FORM\x00\x00\x00\x00AIFFCOMM", "aiff"),
        (b"fLaC\x00\x00\x00\x22", "flac"),
        (b"OggS\x00\x02", "ogg"),
        (b"\x00\x00\x00\x1cftypM4A ", "mov"),
        (b"\x1a\x45\xdf\xa3\x9f", "matroska"),
        (b"#!AMR\n", "amr"),
        (b"caff\x00\x01", "caf"),
        (b"\xff\xf1\x50\x40", "aac"),
        (b"\xff\xfb\x90\x00", "mp3"),
        (b"ID3\x04\x00\x00\x00\x00\x00\x02xx\xff\xfb\x90\x00", "mp3"),
        (b"ID3\x04\x00\x00\x00\x00\x00\x02xxfLaC", "flac"),
        (b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f", "mp3"),
        (b"", None),
        (b"\xff", None),
        (b"\xff\xff\xff\xff", None),
        (b"\xff\xd8\xff\xe0 a picture", None),
        (b"#EXTM3U\nfile:///etc/passwd", None),
        (b"ffconcat version 1.0", None),
        (b"<?xml version='1.0'?><MPD/>", None),
        (b"RIFF\x00\x00\x00\x00AVI ", None),
        (b"RIFF", None),
        (b"v=0\r\no=- 0 0 IN IP4 127.0.0.1", None),
        (b"Example data", None),
    ],
)
def test_a_container_is_told_by_how_it_begins(head: bytes, demuxer: str | None) -> None:
    assert sniff(head) == demuxer


def test_what_is_no_sound_is_refused_with_what_would_be() -> None:
    assert require_sound(b"fLaC") == "flac"
    for head, words in ((b"", "the audio file is empty"), (b"#EXTM3U", "no audio file of a known kind: send wav")):
        with pytest.raises(InvalidRequest, match=words) as refused:
            require_sound(head)
        assert (refused.value.param, refused.value.code) == ("file", "invalid_audio")
