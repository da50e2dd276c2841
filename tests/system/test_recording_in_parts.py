"""One long recording over two engines that hear: the same text at the same times, whatever happens to an engine."""

import difflib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai.types.audio import TranscriptionVerbose

from tests.system.conftest import MakeProduct
from tests.system.engines import busy, pids_of, two_cards
from tests.system.product import Product, eventually
from tests.system.speech import SENTENCES, recording, word_error_rate, words
from workers.packaged.catalogue import PACKAGED, served_path

TURN_S = 37.3716
"""Of the recording, before it begins anew."""
TWO_MINUTES_S = 119
"""… to the end of a sentence."""
MODEL = '[[model]]\nname = "{name}"\npath = "{path}"\nformat = "whisper"\ncapabilities = ["stt"]\nmax_instances = 2\n'


SOUND = recording(60)


@pytest.fixture(scope="module")
def two(make_product: MakeProduct) -> Iterator[Product]:
    """Two cards by hand. `spread` is on both, `single` on one."""
    file = next(each for each in PACKAGED if each.name == "whisper-base")
    served = make_product(settings={"LLAMA__THREADS": "1"})
    path = served_path(file, served.home)
    rows = MODEL.format(name="spread", path=path) + "distribute = { min_items = 2 }\n"
    rows += MODEL.format(name="single", path=path) + "distribute = { enabled = false }\n"
    two_cards(served, rows)
    yield served
    assert served.stop() == 0


def heard(served: Product, model: str, sound: bytes) -> TranscriptionVerbose:
    return served.client(timeout_s=140).audio.transcriptions.create(
        model=model,
        file=("talk.mp3", sound),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )


@pytest.fixture(scope="module")
def undisturbed(two: Product) -> TranscriptionVerbose:
    """The transcript by both: so long a recording, for `min_items`, has the model loaded on both cards."""
    answer = heard(two, "spread", SOUND)
    assert set(pids_of(two, "spread")) == {"cpu-a", "cpu-b"}, two.log
    return answer


def starts(heard: TranscriptionVerbose) -> list[tuple[str, float]]:
    assert heard.words is not None
    return [(" ".join(words(each.word)), each.start) for each in heard.words]


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.timeout(300)  # it is heard twice, once by one engine alone
def test_two_minutes_are_heard_as_by_one_engine(two: Product) -> None:
    sound = recording(TWO_MINUTES_S)
    truth = " ".join(
        said for turn in range(4) for _start, end, said in SENTENCES if turn * TURN_S + end < TWO_MINUTES_S
    )
    spread, whole = heard(two, "spread", sound), heard(two, "single", sound)
    assert word_error_rate(spread.text, truth) <= word_error_rate(whole.text, truth) + 0.01
    assert (spread.language, spread.duration) == (whole.language, whole.duration)
    ours, theirs = starts(spread), starts(whole)
    same = difflib.SequenceMatcher(None, [word for word, _ in ours], [word for word, _ in theirs], autojunk=False)
    apart = sorted(
        abs(ours[block.a + place][1] - theirs[block.b + place][1])
        for block in same.get_matching_blocks()
        for place in range(block.size)
    )
    assert len(apart) > 0.95 * len(theirs)
    assert apart[int(0.95 * len(apart))] <= 0.2, apart[-20:]


def test_segments_are_in_order_and_numbered(undisturbed: TranscriptionVerbose) -> None:
    assert undisturbed.segments is not None
    assert [segment.id for segment in undisturbed.segments] == list(range(len(undisturbed.segments)))
    edges = [edge for segment in undisturbed.segments for edge in (segment.start, segment.end)]
    assert edges == sorted(edges)
    assert 0 < edges[0] < 1
    assert undisturbed.duration - 3 < edges[-1] <= undisturbed.duration
    assert "".join(segment.text for segment in undisturbed.segments).strip() == undisturbed.text


def test_subtitles_are_numbered_throughout(two: Product, undisturbed: TranscriptionVerbose) -> None:
    answer = httpx2.post(
        f"{two.url}/v1/audio/transcriptions",
        data={"model": "spread", "response_format": "srt"},
        files={"file": ("talk.mp3", SOUND)},
        headers=two.headers(),
        timeout=100,
    )
    assert answer.status_code == 200, answer.text
    assert undisturbed.segments is not None
    lines = answer.text.splitlines()
    cues = [line for line in lines if "-->" in line]
    assert len(cues) == len(undisturbed.segments)
    assert cues == sorted(cues)
    assert [line for line in lines if line.isdecimal()] == [str(number) for number in range(1, len(cues) + 1)]


@pytest.mark.usefixtures("undisturbed")
def test_the_plan_of_a_file(two: Product) -> None:
    file = two.home.with_name("talk.mp3")
    file.write_bytes(SOUND)
    request = f'{{"model": "spread", "file": "{file}"}}'
    told = two.told("plan", "--endpoint", "transcription", "--request", "-", stdin=request)
    for word in ('"cut_recording"', '"part-1"', '"part-2"', '"merge"', '"write"', "this part is for cpu-b"):
        assert word in told, told
    assert str(file.parent) not in told
    short = '{"model": "single", "file": {"seconds": 600}}'
    assert '"part-1"' not in two.told("plan", "--endpoint", "transcription", "--request", "-", stdin=short)


def test_an_engine_killed_in_the_middle(two: Product, undisturbed: TranscriptionVerbose) -> None:
    """The answer is whole, in order, and equal to the undisturbed one."""
    pids = pids_of(two, "spread")
    got: list[Any] = []
    asking = threading.Thread(target=lambda: got.append(heard(two, "spread", SOUND)))
    asking.start()
    eventually(lambda: busy(two, "spread") == {"cpu-a", "cpu-b"}, 60, what=lambda: two.log, pause_s=0.01)
    os.kill(pids["cpu-b"], signal.SIGKILL)
    asking.join(100)
    assert got, two.log
    assert got[0] == undisturbed
    eventually(lambda: set(pids_of(two, "spread")) == {"cpu-a", "cpu-b"}, 60, what=lambda: two.log)
