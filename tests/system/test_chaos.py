"""Every process of an install is killed under load: what was promised holds, and it comes back by itself."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import openai
import pytest

from tests.system.conftest import MakeProduct
from tests.system.load import asking
from tests.system.product import CHAT, EMBED, Product, eventually
from tests.tiny_gguf import write_tiny_llama

pytestmark = pytest.mark.slow

BACK_WITHIN_S = 10.0
"""From the kill until what was killed serves again."""
ANSWERED_WITHIN_S = 40.0
"""From then until a whole text is there, of four at once on a machine that has other work."""
TALK: dict[str, object] = {
    "model": CHAT,
    "messages": [{"role": "user", "content": "Tell a long story."}],
    "max_tokens": 48,
}
VECTOR: dict[str, object] = {"model": EMBED, "input": "a cat"}
LONG: dict[str, object] = {**TALK, "max_tokens": 400, "stream": True, "ignore_eos": True}


@pytest.fixture(scope="module")
def chaos(make_product: MakeProduct, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """An install with both models loaded, and a tiny one in the catalogue."""
    served = make_product()
    served.start()
    served.told("models", "add", str(write_tiny_llama(tmp_path_factory.mktemp("weights") / "tiny.gguf")))
    yield served
    assert served.stop() == 0


@pytest.fixture
def loaded(chaos: Product) -> Product:
    """The same, with nothing in flight."""
    for model in (CHAT, EMBED):
        chaos.load(model)
    assert_idle(chaos)
    return chaos


def assert_idle(served: Product) -> None:
    """No slot is held by anybody, nobody waits: no lease has leaked."""
    eventually(
        lambda: not any(engine["in_flight"] or engine["waiting"] for engine in served.engines().values()),
        5,
        what=lambda: f"still held: {served.engines()}",
    )


def busy(served: Product, count: int) -> None:
    eventually(lambda: served.engines()[CHAT]["in_flight"] >= count, 20, what=lambda: str(served.engines()))


def test_chaos_an_engine_is_killed(loaded: Product) -> None:
    """Whole answers are given all the same, by its successor; the other model notices nothing."""
    killed_pid, other_pid = loaded.engine_pid(CHAT), loaded.engine_pid(EMBED)
    killed = loaded.engines()[CHAT]["incarnation"]
    with (
        asking(loaded, "/v1/chat/completions", TALK, threads=4) as talk,
        asking(loaded, "/v1/embeddings", VECTOR, threads=1) as vectors,
    ):
        busy(loaded, 3)
        killed_s = time.monotonic()
        os.kill(killed_pid, signal.SIGKILL)
        eventually(
            lambda: (engine := loaded.engines()[CHAT])["state"] == "ready" and engine["incarnation"] > killed,
            BACK_WITHIN_S,
            what=lambda: f"{loaded.engines()}\n{loaded.log}",
        )
        eventually(
            lambda: any(a.ended_s > killed_s and a.status == 200 for a in list(talk.answers)),
            ANSWERED_WITHIN_S,
            what=lambda: f"{loaded.engines()}\n{loaded.log}",
        )
    assert len(talk.in_flight_at(killed_s)) >= 3
    assert not talk.failed(), talk.failed()[:3]
    assert not vectors.failed(), vectors.failed()[:3]
    assert any(answer.began_s > killed_s for answer in vectors.answers)
    assert loaded.engine_pid(CHAT) != killed_pid
    assert loaded.engine_pid(EMBED) == other_pid
    assert_idle(loaded)


def test_chaos_an_engine_is_killed_in_the_middle_of_a_stream(loaded: Product) -> None:
    """What was sent cannot be taken back: the client is told, and does not take the torn text for a whole one."""
    stream = loaded.client().chat.completions.create(
        model=CHAT, messages=[{"role": "user", "content": "Tell a long story."}], max_tokens=400, stream=True
    )
    for _ in range(5):
        next(stream)
    os.kill(loaded.engine_pid(CHAT), signal.SIGKILL)
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert CHAT in str(caught.value)
    eventually(lambda: loaded.engines()[CHAT]["state"] == "ready", BACK_WITHIN_S, what=lambda: str(loaded.engines()))
    assert_idle(loaded)


def test_chaos_the_front_is_killed(loaded: Product) -> None:
    """It is back with every model still loaded, and no run that was acknowledged is lost."""
    front_pid = loaded.front_pid()
    engine_pids = {model: loaded.engine_pid(model) for model in (CHAT, EMBED)}
    with (
        asking(loaded, "/v1/chat/completions", TALK, threads=3) as talk,
        asking(loaded, "/v1/embeddings", VECTOR, threads=1) as vectors,
    ):
        busy(loaded, 2)
        eventually(lambda: len(vectors.answers) > 20, 20, what=lambda: str(vectors.answers[-1:]))
        killed_s = time.monotonic()
        os.kill(front_pid, signal.SIGKILL)
        eventually(lambda: loaded.healthy() and loaded.front_pid() != front_pid, BACK_WITHIN_S, what=lambda: loaded.log)
        for load in (talk, vectors):
            eventually(
                lambda load=load: any(a.began_s > killed_s and a.status == 200 for a in list(load.answers)),  # type: ignore[misc]
                ANSWERED_WITHIN_S,
                what=lambda: loaded.log,
            )
    assert loaded.front_pid() != front_pid
    assert {model: loaded.engine_pid(model) for model in (CHAT, EMBED)} == engine_pids, "models stay loaded"
    assert {answer.status for answer in talk.failed() + vectors.failed()} <= {0, 503}, "only broken connections"
    acknowledged = {answer.run for answer in talk.answers + vectors.answers if answer.status == 200}
    eventually(
        lambda: acknowledged <= spooled(loaded), 5, what=lambda: f"lost: {sorted(acknowledged - spooled(loaded))[:5]}"
    )
    assert_idle(loaded)


def spooled(served: Product) -> set[str]:
    """The ids of all runs in the spool's segments, each a whole line of JSON."""
    lines: list[str] = []
    for segment in (served.home / "spool").glob("*.*"):
        if segment.suffix in (".open", ".seg"):
            lines += segment.read_text().splitlines()
    return {record["id"] for record in map(json.loads, lines) if record["kind"] == "run"}


def test_chaos_front_and_engine_are_killed_at_once(loaded: Product) -> None:
    os.kill(loaded.engine_pid(CHAT), signal.SIGKILL)
    os.kill(loaded.front_pid(), signal.SIGKILL)
    began_s = time.monotonic()
    eventually(loaded.healthy, BACK_WITHIN_S, what=lambda: loaded.log)
    answer = loaded.post("/v1/chat/completions", TALK)
    assert answer.status_code == 200, answer.text
    assert time.monotonic() - began_s < BACK_WITHIN_S + ANSWERED_WITHIN_S
    assert_idle(loaded)


def test_chaos_an_engine_that_cannot_come_back(loaded: Product) -> None:
    """Its file has gone bad: it is given up with the reason shown; the others serve; a sound file cures it."""
    assert loaded.post("/v1/chat/completions", {**TALK, "model": "tiny"}).status_code == 200
    path = Path(json.loads(loaded.told("models", "show", "tiny"))["path"])
    sound = path.read_bytes()
    replace(path, b"garbage" * 1000)
    try:
        os.kill(loaded.engine_pid("tiny"), signal.SIGKILL)
        eventually(lambda: loaded.engines()["tiny"]["state"] == "quarantined", 20, what=lambda: loaded.log)
        told = loaded.told("engines", "list")
        assert "quarantined" in told
        assert "not a GGUF file" in " ".join(told.replace("│", " ").split())
        answer = loaded.post("/v1/chat/completions", {**TALK, "model": "tiny"})
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "model_load_failed"
        assert "tiny" in answer.json()["error"]["message"]
        assert loaded.post("/v1/chat/completions", TALK).status_code == 200
    finally:
        replace(path, sound)
    loaded.load("tiny")
    assert loaded.post("/v1/chat/completions", {**TALK, "model": "tiny"}).status_code == 200
    assert_idle(loaded)


def replace(path: Path, content: bytes) -> None:
    """Put another file in its place: the one that is mapped into memory stays as it is."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def test_chaos_an_engine_that_is_killed_again_and_again(loaded: Product) -> None:
    """Five deaths in two minutes: it is given up instead of eating the machine; asked to, it starts once more."""
    loaded.load("tiny")
    deaths = 0
    while loaded.engines()["tiny"]["state"] != "quarantined":
        assert deaths < 8, loaded.log
        eventually(lambda: loaded.engines()["tiny"]["state"] in ("ready", "quarantined"), 30, what=lambda: loaded.log)
        for pid, line in loaded.processes().items():
            if '"name":"tiny"' in line:
                os.kill(pid, signal.SIGKILL)
                deaths += 1
        time.sleep(0.1)
    assert "killed by SIGKILL" in loaded.engines()["tiny"]["reason"]
    assert loaded.post("/v1/embeddings", VECTOR).status_code == 200
    loaded.load("tiny")
    assert loaded.engines()["tiny"]["state"] == "ready"
    assert_idle(loaded)


def test_chaos_the_supervisor_is_killed(make_product: MakeProduct) -> None:
    """Nothing is left to hold memory or the port."""
    served = make_product()
    served.start()
    assert served.process is not None
    with asking(served, "/v1/chat/completions", TALK, threads=2) as load:
        eventually(lambda: load.answers, 30, what=lambda: served.log)
        assert load.answers[0].status == 200
        family = served.processes()
        assert len(family) >= 4, family
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        served.assert_nothing_left(family, within_s=5)
    served.start()
    assert served.post("/v1/chat/completions", TALK).status_code == 200


def test_chaos_sigterm_lets_a_stream_finish(make_product: MakeProduct) -> None:
    """The one that runs gets its end; new ones are refused; then all is over, with code 0."""
    served = make_product(settings={"SERVER__DRAIN_S": "30"})
    served.start()
    assert served.process is not None
    served.load(CHAT)
    family = served.processes()
    with httpx2.stream(
        "POST", f"{served.url}/v1/chat/completions", json=LONG, headers=served.headers(), timeout=60
    ) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        served.process.send_signal(signal.SIGTERM)
        began_s = time.monotonic()
        time.sleep(0.5)
        assert _refused(served)
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert len(rest) > 100
    assert served.process.wait(30) == 0
    assert time.monotonic() - began_s < 30
    served.assert_nothing_left(family)


def _refused(served: Product) -> bool:
    try:
        return served.post("/v1/chat/completions", TALK).status_code == 503
    except httpx2.ConnectError:
        return True


def test_chaos_a_second_sigint_hurries(make_product: MakeProduct) -> None:
    served = make_product(settings={"SERVER__DRAIN_S": "60"})
    served.start()
    assert served.process is not None
    served.load(CHAT)
    family = served.processes()
    with httpx2.stream(
        "POST",
        f"{served.url}/v1/chat/completions",
        json={**LONG, "max_tokens": 4000},
        headers=served.headers(),
        timeout=60,
    ) as stream:
        lines = stream.iter_lines()  # dropped, it would close the stream
        assert next(lines).startswith("data: ")
        served.process.send_signal(signal.SIGINT)
        time.sleep(1)
        assert served.process.poll() is None, "the first lets the stream run on"
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(5) == 0
    served.assert_nothing_left(family)


def test_chaos_a_drain_that_takes_too_long_is_ended(make_product: MakeProduct) -> None:
    served = make_product(settings={"SERVER__DRAIN_S": "1"})
    served.start()
    assert served.process is not None
    served.load(CHAT)
    url, asked = f"{served.url}/v1/chat/completions", {**LONG, "max_tokens": 4000}
    with (
        ThreadPoolExecutor(1) as pool,
        httpx2.stream("POST", url, json=asked, headers=served.headers(), timeout=60) as stream,
    ):
        lines = stream.iter_lines()  # dropped, it would close the stream
        assert next(lines).startswith("data: ")
        waiting = pool.submit(httpx2.post, url, json={**asked, "stream": False}, headers=served.headers(), timeout=60)
        eventually(lambda: served.engines()[CHAT]["in_flight"] == 2, 30, what=lambda: str(served.engines()))
        began_s = time.monotonic()
        assert served.stop(within_s=15) == 0
        assert time.monotonic() - began_s < 12
        told = waiting.result()
        assert (told.status_code, told.json()["error"]["code"]) == (503, "draining"), told.text
