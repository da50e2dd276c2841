"""Recordings to text over HTTP, with OpenAI's client and real weights."""

import io
import subprocess
import time
import wave

import httpx2
import pytest
from openai import APIStatusError, OpenAI

from infra.ffmpeg import ffmpeg
from tests.system.product import CHAT, Product, eventually
from tests.system.speech import RECORDING, SENTENCES, recording, word_error_rate, words

WHISPER = "whisper-base"


def converted(*options: str) -> bytes:
    """The recording in another container."""
    argv = [str(ffmpeg()), "-loglevel", "error", "-i", str(RECORDING), *options, "pipe:1"]
    return subprocess.run(argv, capture_output=True, check=True).stdout


def silence(seconds: float, rate_hz: int = 16000) -> bytes:
    """A WAV with nothing in it."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, rate_hz, 0, "NONE", "NONE"))
        sound.writeframes(bytes(int(seconds * rate_hz) * 2))
    return file.getvalue()


def left_behind(product: Product) -> list[str]:
    """Half-written files, and such as nothing keeps."""
    folders = [product.home / "payloads" / "incoming", product.home / "jobs" / "incoming", product.home / "passing"]
    return [str(path) for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file()]


def test_ten_sentences_are_understood(client: OpenAI) -> None:
    answer = client.audio.transcriptions.create(model=WHISPER, file=RECORDING)
    assert word_error_rate(answer.text) <= 0.15, answer.text
    assert answer.usage is not None
    assert answer.usage.type == "duration"
    assert answer.usage.seconds == 38


def test_words_and_segments_have_their_times(client: OpenAI) -> None:
    answer = client.audio.transcriptions.create(
        model="whisper-1",
        file=("ten.mp3", converted("-f", "mp3")),
        language="en",
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert (answer.language, round(answer.duration)) == ("english", 37)
    assert answer.words is not None
    assert answer.segments is not None
    assert answer.segments[0].start == pytest.approx(0.3, abs=0.2)
    starts = [word.start for word in answer.words]
    assert starts == sorted(starts)
    assert all(0 <= word.start <= word.end <= answer.duration for word in answer.words)
    for start_s, _end_s, sentence in SENTENCES:  # each sentence's first word, near where it is spoken
        first = words(sentence)[0]
        assert any(words(word.word) == [first] and abs(word.start - start_s) < 0.2 for word in answer.words), sentence


@pytest.mark.parametrize(
    "options",
    [("-f", "wav"), ("-f", "flac"), ("-f", "adts"), ("-c:a", "libopus", "-f", "webm"), ("-f", "matroska")],
    ids=["wav", "flac", "aac", "webm", "mkv"],
)
def test_any_common_container(client: OpenAI, options: tuple[str, ...]) -> None:
    answer = client.audio.transcriptions.create(
        model=WHISPER, file=("sound", converted("-t", "6.9", *options)), language="en", response_format="text"
    )
    assert word_error_rate(str(answer), " ".join(said for _start, _end, said in SENTENCES[:2])) <= 0.15


def test_subtitles(client: OpenAI) -> None:
    sound = converted("-t", "10.5", "-f", "wav")
    srt = str(client.audio.transcriptions.create(model=WHISPER, file=("a.wav", sound), response_format="srt"))
    assert srt.startswith("1\n00:00:00,")
    assert "\n\n2\n" in srt
    vtt = str(client.audio.transcriptions.create(model=WHISPER, file=("a.wav", sound), response_format="vtt"))
    assert vtt.startswith("WEBVTT\n\n00:00:00.")


def test_a_translation_is_english(product: Product) -> None:
    answer = httpx2.post(  # OpenAI's client gives a warning of its own for this path
        f"{product.url}/v1/audio/translations",
        data={"model": WHISPER},
        files={"file": ("a.wav", converted("-t", "6.9", "-f", "wav"))},
        headers=product.headers(),
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert word_error_rate(answer.json()["text"], " ".join(said for _start, _end, said in SENTENCES[:2])) <= 0.3


def test_silence_has_no_words(client: OpenAI) -> None:
    answer = client.audio.transcriptions.create(
        model=WHISPER, file=("a.wav", silence(20)), response_format="verbose_json"
    )
    assert (answer.text, answer.segments, answer.duration) == ("", [], 20.0)


BAD = {
    "nothing": (b"", "empty"),
    "text": (b"Example data", "no audio file"),
    "playlist": (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "no audio file"),
    "concat script": (b"ffconcat version 1.0\nfile /etc/passwd\n", "no audio file"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), "no audio file"),
    "half a WAV": (silence(4)[:60_000], "cut off"),
    "a WAV's head alone": (b"RIFF\x24\x00\x00\x00WAVEfmt ", "cannot be decoded"),
    "noise after an ID3 tag": (b"ID3\x04\x00\x00\x00\x00\x00\x00" + b"noise" * 500, "cannot be decoded"),
    "an Ogg that is none": (b"OggS" + bytes(2000), "cannot be decoded"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sound_is_the_client_s_to_mend(client: OpenAI, product: Product, case: str) -> None:
    data, words_ = BAD[case]
    product.load(WHISPER)
    pid = product.engine_pid(WHISPER)
    with pytest.raises(APIStatusError, match=words_) as refused:
        client.audio.transcriptions.create(model=WHISPER, file=("speech.mp3", data))
    assert refused.value.status_code == 400
    assert refused.value.body is not None
    assert product.engine_pid(WHISPER) == pid
    assert not left_behind(product)


def test_hours_of_silence_in_a_small_file(client: OpenAI) -> None:
    argv = [str(ffmpeg()), "-loglevel", "error", "-f", "lavfi", "-i", "anullsrc=r=8000:cl=mono", "-t", "7500"]
    bomb = subprocess.run([*argv, "-f", "flac", "pipe:1"], capture_output=True, check=True).stdout
    with pytest.raises(APIStatusError, match="longer than the 120 minutes") as refused:
        client.audio.transcriptions.create(model=WHISPER, file=("a.flac", bomb))
    assert refused.value.status_code == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": CHAT}, "model"),
        ({"model": ""}, "model"),
        ({"response_format": "docx"}, "response_format"),
        ({"language": "klingon"}, "language"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": "7"}, "temperature"),
        ({"timestamp_granularities[]": "syllable"}, "timestamp_granularities.0"),
        ({"stream": "true", "response_format": "srt"}, "response_format"),
        ({"voice": "alloy"}, "voice"),
    ],
)
def test_a_wrong_field_is_named(product: Product, fields: dict[str, str], param: str) -> None:
    answer = httpx2.post(
        f"{product.url}/v1/audio/transcriptions",
        data={"model": WHISPER, **fields},
        files={"file": ("a.wav", silence(1), "audio/wav")},
        headers=product.headers(),
        timeout=30,
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "text/plain"])
def test_a_body_that_is_no_form(product: Product, kind: str) -> None:
    headers = product.headers() | {"Content-Type": kind}
    answer = httpx2.post(f"{product.url}/v1/audio/transcriptions", content=b"{}", headers=headers, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_content_type"


def test_a_form_without_a_file_and_one_without_a_key(product: Product) -> None:
    url = f"{product.url}/v1/audio/transcriptions"
    answer = httpx2.post(url, data={"model": WHISPER}, files={"other": b"x"}, headers=product.headers(), timeout=30)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
    assert httpx2.post(url, data={"model": WHISPER}, files={"file": b"x"}, timeout=30).status_code == 401


def test_the_model_says_what_it_does(client: OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert models[WHISPER].model_dump()["capabilities"] == ["stt"]


def test_a_stream_is_the_same_text_piece_by_piece(client: OpenAI) -> None:
    whole = client.audio.transcriptions.create(model=WHISPER, file=RECORDING, language="en")
    began_s, deltas, at_s = time.monotonic(), [], []
    for event in client.audio.transcriptions.create(model=WHISPER, file=RECORDING, language="en", stream=True):
        if event.type == "transcript.text.delta":
            deltas.append(event.delta)
            at_s.append(time.monotonic() - began_s)
        else:
            assert event.type == "transcript.text.done"
            assert event.text == whole.text
            assert event.usage is not None
            assert event.usage.total_tokens > event.usage.input_tokens > 37 * 50
    assert "".join(deltas) == whole.text
    assert len(deltas) > 3
    assert at_s[0] < 0.8 * (time.monotonic() - began_s), "the first words come before the last are heard"


def test_a_client_that_leaves_a_stream_frees_the_engine(client: OpenAI, product: Product) -> None:
    stream = client.audio.transcriptions.create(model=WHISPER, file=("talk.mp3", recording(300)), stream=True)
    assert next(iter(stream)).type == "transcript.text.delta"
    assert product.engines()[WHISPER]["in_flight"] == 1
    stream.response.close()
    eventually(lambda: not product.engines()[WHISPER]["in_flight"], 5, what=lambda: str(product.engines()[WHISPER]))
    answer = client.audio.transcriptions.create(model=WHISPER, file=("a.wav", silence(1)))
    assert answer.text == ""
