"""A text over two engines that speak: the same sound as by one, in order, whatever happens to an engine."""

import io
import os
import signal
import threading
import wave
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.system.conftest import MakeProduct
from tests.system.product import Product, eventually
from tests.system.speech import TEXT
from workers.packaged.catalogue import model_named, served_path

CARD = '[[cards.engine_specs]]\nname = "{name}"\nbackend = "cpu"\nmemory_mib = 4096\n'
MODEL = (
    '[[model]]\nname = "{name}"\npath = "{path}"\nformat = "piper"\ncapabilities = ["tts"]\nweights_bytes = 63201294\n'
)
PIPER = "piper/speaker.py"
FEW = (
    "The river was calm. She opened the window. Nobody knew why. It rained all day. We left at seven. The dog laughed."
)
MANY = " ".join([TEXT] * 4)[:1990]
"""So much, by its characters, that it is worth a load on the second card."""


@pytest.fixture(scope="module")
def two(make_product: MakeProduct) -> Iterator[Product]:
    """Two cards by hand. `spread` is on both, `single` on one."""
    served = make_product(settings={"LLAMA__THREADS": "1"})
    path = served_path(model_named("tts-1"), served.home)
    rows = "".join(CARD.format(name=name) for name in ("cpu-a", "cpu-b"))
    rows += MODEL.format(name="spread", path=path) + "distribute = { min_items = 2 }\n"
    rows += MODEL.format(name="single", path=path) + "distribute = { enabled = false }\n"
    served.home.joinpath("coderai.toml").write_text(rows)
    served.start()
    said(served, "spread", MANY, speed=4.0)
    assert len(engines_of(served)) == 2, served.log
    yield served
    assert served.stop() == 0


def engines_of(served: Product) -> list[dict[str, Any]]:
    return [each for each in served.get("/admin/api/engines")["engines"] if each["model"] == "spread"]


def said(served: Product, model: str, text: str = FEW, **fields: object) -> bytes:
    body = {"model": model, "input": text, "voice": "alloy", "response_format": "wav"} | fields
    answer = served.post("/v1/audio/speech", body, timeout_s=110)
    assert answer.status_code == 200, answer.text
    return answer.content


def samples(content: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(content)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(int)


def longest_silence(sound: np.ndarray) -> int:
    """In samples."""
    loud = np.flatnonzero(np.abs(sound) > 300)
    return int(np.max(np.diff(loud), initial=0))


def test_it_is_the_sound_of_one_engine(two: Product) -> None:
    spread, single = said(two, "spread"), said(two, "single")
    assert spread == single
    sound, alone = samples(spread), samples(said(two, "single", FEW[:20]))
    assert longest_silence(sound) < longest_silence(alone) + 0.6 * 22050  # what piper puts around a sentence
    assert np.max(np.abs(np.diff(sound))) < 30_000  # nothing clicks where the parts meet
    assert said(two, "spread", response_format="mp3") == said(two, "single", response_format="mp3")


def test_the_command_line_shows_the_parts_before(two: Product) -> None:
    request = f'{{"model": "spread", "input": "{FEW}", "voice": "alloy"}}'
    told = two.told("plan", "--endpoint", "speech", "--request", "-", stdin=request)
    for word in (
        '"split"',
        '"part-1"',
        '"part-2"',
        '"join_speech"',
        "this part is for cpu-a",
        "this part is for cpu-b",
    ):
        assert word in told, told


def test_an_engine_killed_in_the_middle(two: Product) -> None:
    """The answer is whole, in order, and equal to the undisturbed one."""
    undisturbed = said(two, "single")
    pid = next(pid for pid, line in two.processes().items() if '"name":"spread"' in line and '"pool":"cpu-b"' in line)
    got: list[bytes] = []
    asking = threading.Thread(target=lambda: got.append(said(two, "spread")))
    asking.start()
    eventually(
        lambda: all(engine["in_flight"] for engine in engines_of(two)),
        20,
        what=lambda: str(engines_of(two)),
        pause_s=0.005,
    )
    os.kill(pid, signal.SIGKILL)
    asking.join(110)
    assert got == [undisturbed], two.log
    eventually(
        lambda: [engine["state"] for engine in engines_of(two)] == ["ready", "ready"],
        40,
        what=lambda: str(engines_of(two)),
    )
    speakers = [line for line in two.processes().values() if PIPER in line]
    assert len(speakers) == 3, speakers  # the one of the killed engine has gone with it


def test_a_voice_killed_in_the_middle(two: Product) -> None:
    """piper's own process: the engine starts it anew, and nobody notices."""
    undisturbed = said(two, "single")
    engine = next(pid for pid, line in two.processes().items() if '"name":"single"' in line)
    voice = next(pid for pid, line in two.processes().items() if PIPER in line and parent(pid) == engine)
    threading.Timer(0.5, os.kill, (voice, signal.SIGKILL)).start()
    assert said(two, "single") == undisturbed
    assert voice not in two.processes()


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])
