"""Texts to speech, with OpenAI's client and piper: what is said is heard, in every format, as it is spoken."""

import io
import json
import subprocess
import time
import wave

import httpx2
import numpy as np
import pytest
from openai import APIStatusError, OpenAI

from infra.ffmpeg import ffmpeg
from infra.ffmpeg_audio import FORMS, PCM_RATE_HZ
from tests.system.product import CHAT, Product
from tests.system.speech import SENTENCES, TEXT, word_error_rate

VOICE = "piper-en-us-joe"
HEARS = "whisper-base"
SHORT = " ".join(said for _start, _end, said in SENTENCES[:2])
SOME = " ".join(said for _start, _end, said in SENTENCES[:5])
PADDING_S = 0.12


def decoded(data: bytes, form: str) -> np.ndarray:
    """What a player hears, at the rate of `pcm`."""
    raw = ["-f", "s16le", "-ar", str(PCM_RATE_HZ), "-ac", "1"] if form == "pcm" else []
    argv = [str(ffmpeg()), "-loglevel", "error", *raw, "-i", "pipe:0", "-f", "s16le", "-ac", "1"]
    done = subprocess.run([*argv, "-ar", str(PCM_RATE_HZ), "pipe:1"], input=data, capture_output=True, check=True)
    return np.frombuffer(done.stdout, "<i2")


def test_the_model_is_there_and_says_what_it_does(client: OpenAI) -> None:
    models = {model.id: model.model_dump() for model in client.models.list()}
    assert models[VOICE]["capabilities"] == ["tts"]
    assert models[VOICE]["aliases"] == ["tts-1"]


def test_what_is_said_is_heard(client: OpenAI) -> None:
    spoken = client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT)
    assert spoken.response.headers["content-type"] == "audio/mpeg"
    heard = client.audio.transcriptions.create(model=HEARS, file=("speech.mp3", spoken.content))
    assert word_error_rate(heard.text) <= 0.15, heard.text


def test_every_format_is_the_same_sound(client: OpenAI) -> None:
    made = {
        form: client.audio.speech.create(
            model=VOICE,
            voice="alloy",
            input=SHORT,
            response_format=form,  # type: ignore[arg-type]  # one of OpenAI's six
        )
        for form in FORMS
    }
    seconds = {form: len(decoded(answer.content, form)) / PCM_RATE_HZ for form, answer in made.items()}
    assert 4 < seconds["wav"] < 9
    assert all(-0.01 <= seconds[form] - seconds["wav"] <= PADDING_S for form in FORMS), seconds
    with wave.open(io.BytesIO(made["wav"].content)) as file:
        assert file.getnframes() / file.getframerate() == pytest.approx(seconds["wav"], abs=0.001)
        assert len(made["wav"].content) == 44 + 2 * file.getnframes()
    assert {form: answer.response.headers["content-type"] for form, answer in made.items()} == {
        form: facts.media_type for form, facts in FORMS.items()
    }


def test_speed_changes_the_length(client: OpenAI) -> None:
    usual, fast, slow = (
        len(
            client.audio.speech.create(
                model=VOICE, voice="nova", input=SHORT, response_format="wav", speed=speed
            ).content
        )
        for speed in (1.0, 2.0, 0.5)
    )
    assert fast < 0.7 * usual < usual < 0.7 * slow


def test_it_is_heard_while_it_is_spoken(client: OpenAI, product: Product) -> None:
    product.load(VOICE)
    began = time.monotonic()
    with client.audio.speech.with_streaming_response.create(model=VOICE, voice="ash", input=SOME) as answer:
        pieces = answer.iter_bytes()
        streamed = next(pieces)
        first_s = time.monotonic() - began
        streamed += b"".join(pieces)
    assert first_s < 0.5 * (time.monotonic() - began)
    body = {"model": VOICE, "voice": "ash", "input": SOME, "stream_format": "sse"}
    events = product.post("/v1/audio/speech", body).text.split("\n\n")
    assert json.loads(events[-2][6:])["type"] == "speech.audio.done"
    whole = client.audio.speech.create(model=VOICE, voice="ash", input=SOME, stream_format="audio")
    assert whole.content == streamed  # the same sentence is the same sound, each time


BAD: dict[str, tuple[dict[str, object], str]] = {
    "nothing": ({"input": ""}, "input"),
    "marks alone": ({"input": "… !? \u0000\n"}, "input"),
    "a megabyte": ({"input": "word " * 200_000}, "input"),
    "an unknown voice": ({"voice": "zoe"}, "voice"),
    "a voice's unknown id": ({"voice": {"id": "voice_1"}}, "voice"),
    "no speed": ({"speed": 0}, "speed"),
    "another format": ({"response_format": "ogg"}, "response_format"),
    "a model that does not speak": ({"model": CHAT}, "model"),
    "an unknown field": ({"pitch": 3}, "pitch"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_named(product: Product, case: str) -> None:
    fields, param = BAD[case]
    product.load(VOICE)
    pid = product.engine_pid(VOICE)
    answer = product.post("/v1/audio/speech", {"model": VOICE, "input": "Hello.", "voice": "alloy"} | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert product.engine_pid(VOICE) == pid


def test_an_unknown_voice_as_openai_s_client_sees_it(client: OpenAI) -> None:
    with pytest.raises(APIStatusError, match="default, alloy, ash") as refused:
        client.audio.speech.create(model=VOICE, voice="zoe", input="Hello.")
    assert refused.value.status_code == 400


def test_half_a_character_is_no_json(product: Product) -> None:
    body = b'{"model": "tts-1", "voice": "alloy", "input": "a \\ud800 b"}'
    headers = product.headers() | {"Content-Type": "application/json"}
    answer = httpx2.post(f"{product.url}/v1/audio/speech", content=body, headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("text", ["😀", "Hello\0 there", "x" * 2000, "1" * 400, "[[ hello ]]", "私は学生です。"])
def test_strange_texts_are_spoken(product: Product, text: str) -> None:
    product.load(VOICE)
    pid = product.engine_pid(VOICE)
    body = {"model": VOICE, "input": text, "voice": "alloy", "response_format": "wav", "speed": 4}
    answer = product.post("/v1/audio/speech", body, timeout_s=100)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) > 5000
    assert product.engine_pid(VOICE) == pid
