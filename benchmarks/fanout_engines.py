"""Two real engines, each held to a core of its own, against one of them alone: embeddings, pages to read, speech.

The flow server is off, rounds alternate, medians are compared. Beside it stands what this machine gives at the most:
two engines that have nothing to do with each other, each with a request of its own, which share memory and caches, and
perhaps one core's arithmetic. Part of `python -m benchmarks.fanout`.
"""

import asyncio
import base64
import io
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson
import psutil
from PIL import Image, ImageDraw, ImageFont

from benchmarks.exchange import post
from benchmarks.ours import Install
from benchmarks.processes import StartFailed
from workers.packaged import packaged_entries, prepare_one
from workers.packaged.catalogue import find_folder, model_named
from workers.packaged.rapidocr import rapidocr_entries
from workers.types import ModelEntry

GOAL = 1.6
CARDS = ("core-0", "core-1")
_SETTINGS = {"MODELS__PACKAGED": "false", "FLOWS__SERVER": "off", "RECORD__SPOOL": "true", "LLAMA__THREADS": "1"}
_CARD = '[[cards.engine_specs]]\nname = "{name}"\nbackend = "cpu"\nmemory_mib = 8192\n'
_TEXT = "The {number}th traveller of the caravan carried salt, two lamps and a letter that nobody had opened since May."
_SENTENCE = "Traveller number {number} carried salt and two lamps."

Body = dict[str, object]


@dataclass(frozen=True)
class Work:
    """One endpoint: `body` makes a request of so many items, of which `usual` are measured; `large` is worth a load on
    both cards."""

    name: str
    items: str
    model: str
    path: str
    endpoint: str
    body: Callable[[int], Body]
    usual: int
    large: Body


class Took(NamedTuple):
    """Seconds of each round: on one engine, on both, and two requests at once on an engine each."""

    alone: list[float]
    both: list[float]
    apart: list[float]


def works(inputs: int) -> tuple[Work, ...]:
    """What is measured; `inputs` texts are embedded."""
    return (
        Work("MiniLM", "inputs", "all-minilm-l6-v2", "/v1/embeddings", "embeddings", _texts, inputs, _texts(64)),
        Work("RapidOCR", "pages", "rapidocr", "/v1/ocr/batch", "ocr", _pages, 12, {"files": [_image("")] * 40}),
        Work("Piper", "sentences", "tts-1", "/v1/audio/speech", "speech", _speech, 16, _speech(60) | {"speed": 4.0}),
    )


def _texts(count: int) -> Body:
    return {"input": [_TEXT.format(number=number) for number in range(count)], "encoding_format": "base64"}


def _pages(count: int) -> Body:
    return {"files": [_image(f"Page {number}: {number * 317} lamps and no salt.") for number in range(count)]}


def _speech(count: int) -> Body:
    text = " ".join(_SENTENCE.format(number=number) for number in range(count))
    return {"input": text, "voice": "alloy", "response_format": "wav"}


def _image(text: str) -> str:
    """A page with the text twice, as base64."""
    image = Image.new("RGB", (640, 320), "white")
    for y in (60, 200):
        ImageDraw.Draw(image).text((20, y), text, font=ImageFont.load_default(30), fill="black")
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def real(scratch: Path, rounds: int, inputs: int) -> None:
    """The table of two real engines, a core each."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("two engines on a core each: not measurable here, this machine has one core")
        return
    print("\n| engine | items | one engine s | two engines s | faster | goal | two requests apart |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for work in works(inputs):
        entry = _entry(work.model, scratch)
        if entry is None:
            print(f"| {work.name} | not installed: {work.model} | | | | | |")
            continue
        took = _measured(work, entry, scratch / work.endpoint, rounds, cores)
        one, two = (statistics.median(each) for each in (took.alone, took.both))
        faster, most = _times(took.alone, took.both), 2 * _times(took.alone, took.apart)
        row = f"| {work.name} | {work.usual} {work.items} | {one:.3f} | {two:.3f} | {faster:.2f} ×"
        print(f"{row} | ≥ {GOAL} × | {most:.2f} × |", flush=True)


def _times(slow: list[float], fast: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def _entry(name: str, scratch: Path) -> ModelEntry | None:
    """The packaged model of that name or alias; None if it is not installed."""
    if name != "rapidocr" and any(find_folder(package) is None for package in model_named(name).packages):
        return None
    if name != "rapidocr":
        asyncio.run(prepare_one(model_named(name), scratch))
    entries = (*packaged_entries(scratch), *rapidocr_entries(find_folder))
    return next((entry for entry in entries if name in (entry.name, *entry.aliases)), None)


def _measured(work: Work, entry: ModelEntry, home: Path, rounds: int, cores: list[int]) -> Took:
    """A round after the other."""
    config = "".join(_CARD.format(name=name) for name in CARDS)
    config += _row(entry, "both") + f"distribute = {{ nodes = {list(CARDS)}, min_items = 2 }}\n"
    config += "".join(
        _row(entry, name) + f'engine = "{card}"\n' for name, card in zip(("alone", "other"), CARDS, strict=True)
    )
    install = Install(home, _SETTINGS, config)
    key = install.create_key("bench")
    took, body = Took([], [], []), work.body(work.usual)
    with install:
        for model, first in (("both", work.large), ("alone", work.body(2)), ("other", work.body(2))):
            _ask(install, key, work, model, first)
        _require_parts(install, key, work)
        for name, core in zip(CARDS, cores, strict=True):
            _hold(install, f'"pool":"{name}"', core)
        for _ in range(2):  # the front learns how fast they are there
            _ask(install, key, work, "both", body)
        for _ in range(rounds):
            took.alone.append(_ask(install, key, work, "alone", body))
            took.both.append(_ask(install, key, work, "both", body))
            with ThreadPoolExecutor(2) as pool:
                at_once = pool.map(lambda model: _ask(install, key, work, model, body), ("alone", "other"))
                took.apart.append(max(at_once))
    return took


def _row(entry: ModelEntry, name: str) -> str:
    capabilities = [str(each) for each in entry.capabilities]
    return (
        f'[[model]]\nname = "{name}"\npath = "{entry.path}"\nformat = "{entry.format}"\n'
        f"capabilities = {capabilities}\nweights_bytes = {entry.weights_bytes}\n"
    )


def _ask(install: Install, key: str, work: Work, model: str, body: Body) -> float:
    """Seconds that one request took.

    Raises:
        StartFailed: it was not answered.
    """
    asked = orjson.dumps({"model": model, **body})
    began = time.perf_counter()
    answer = post(install.port, work.path, asked, key, within_s=600)
    took = time.perf_counter() - began
    if answer.status != 200:
        raise StartFailed(f"{work.name}: {answer.status} {answer.text[:500]}")
    return took


def _require_parts(install: Install, key: str, work: Work) -> None:
    """Raises StartFailed unless such a request goes to both engines."""
    request: Body = {"model": "both", **work.body(work.usual)}
    if work.endpoint == "ocr":  # a plan needs only the number of pages
        request = {"model": "both", "files": [{"pages": 1}] * work.usual}
    asked = orjson.dumps({"endpoint": work.endpoint, "request": request})
    planned = post(install.port, "/v1/plan", asked, key)
    steps = orjson.loads(planned.body).get("plan", {}).get("steps", [])
    if {step["demand"]["home"] for step in steps if step.get("items")} != set(CARDS):
        raise StartFailed(f"{work.name} was not split over both engines: {planned.text[:500]}")


def _hold(install: Install, word: str, core: int) -> None:
    """Hold every thread of the engine processes of a card, and of their children, to one core."""
    for process in psutil.Process(install.pid).children(recursive=True):
        if any(word in argument for argument in process.cmdline()):
            for thread in _threads(process):
                os.sched_setaffinity(thread, {core})


def _threads(process: psutil.Process) -> Iterator[int]:
    for each in (process, *process.children(recursive=True)):
        yield from (thread.id for thread in each.threads())
