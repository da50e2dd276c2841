"""One request over several engines: what the split gains and what it costs: `python -m benchmarks.fanout`.

First simulated engines of a fixed time an input, each a process with a port, behind a whole install; then two real
engines that embed, read and speak, each held to a core of its own. Rounds alternate; medians are compared.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks import cpu
from benchmarks.embedder import ITEM_S
from benchmarks.exchange import post
from benchmarks.fanout_engines import real
from benchmarks.ours import Install
from benchmarks.processes import ROOT, StartFailed
from benchmarks.text import weights

SIMULATED_S = 0.1
EQUAL = (2, 4, 8)
_QUICK = ("quick-0", "quick-1")
_QUICK_ITEMS, _QUICK_REQUESTS = 16, 100
_CARD = '[[cards.engine_specs]]\nname = "{name}"\nbackend = "cpu"\nmemory_mib = 8192\n'
_MODEL = '[[model]]\nname = "{name}"\npath = "{path}"\nmax_instances = 4\n'
_SPREAD = "distribute = {{ nodes = {nodes}, min_items = 2 }}\n"
_SETTINGS = {"MODELS__PACKAGED": "false", "FLOWS__SERVER": "off", "RECORD__SPOOL": "true"}
_TEXT = "The {number}th traveller of the caravan carried salt, two lamps and a letter that nobody had opened since May."


@dataclass(frozen=True)
class Case:
    """One model of the simulated install: the cards that it may use."""

    name: str
    cards: tuple[str, ...]
    items: int
    ideal: float
    """How many times faster than one engine it could be."""


def cases() -> list[Case]:
    """Equal engines, eight items each; and three equal ones with one at half their speed."""
    equal = [Case(f"{k} equal engines", tuple(f"card-{n}" for n in range(k)), 8 * k, k) for k in EQUAL]
    return [*equal, Case("3 engines and one at half speed", ("card-0", "card-1", "card-2", "slow"), 28, 3.5)]


def ask(install: Install, key: str, model: str, items: int) -> float:
    """Seconds that one request took.

    Raises:
        StartFailed: it was not answered as it should be.
    """
    body = orjson.dumps(_body(model, items))
    began = time.perf_counter()
    answer = post(install.port, "/v1/embeddings", body, key, within_s=600)
    took = time.perf_counter() - began
    if answer.status != 200 or len(orjson.loads(answer.body)["data"]) != items:
        raise StartFailed(f"{model}: {answer.status} {answer.text[:500]}")
    return took


def _body(model: str, items: int) -> dict[str, object]:
    inputs = [_TEXT.format(number=number) for number in range(items)]
    return {"model": model, "input": inputs, "encoding_format": "base64"}


def simulated(scratch: Path, rounds: int) -> None:
    """The table of the simulated engines."""
    home, program = scratch / "simulated", scratch / "embedder.sh"
    program.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m benchmarks.embedder "$@"\n')
    program.chmod(0o700)
    path = weights(home, "all-minilm-l6-v2")
    config = "".join(
        _CARD.format(name=f"card-{number}") + f'env = {{ {ITEM_S} = "{SIMULATED_S}" }}\n'
        for number in range(max(EQUAL))
    )
    config += _CARD.format(name="slow") + f'env = {{ {ITEM_S} = "{2 * SIMULATED_S}" }}\n'
    for place, case in enumerate(cases()):
        config += _MODEL.format(name=f"m{place}", path=path) + _SPREAD.format(nodes=list(case.cards))
    config += _MODEL.format(name="alone", path=path) + 'engine = "card-0"\n'
    config += "".join(_CARD.format(name=name) for name in _QUICK)
    config += _MODEL.format(name="quick", path=path) + _SPREAD.format(nodes=list(_QUICK))
    install = Install(home, {**_SETTINGS, "LLAMA__SERVER_BIN": str(program)}, config)
    key = install.create_key("bench")
    with install:
        print("| engines | one engine s | all of them s | faster | ideal | goal |")
        print("|---|---:|---:|---:|---:|---:|")
        ask(install, key, "alone", 1)
        for place, case in enumerate(cases()):
            print(_simulated_row(install, key, f"m{place}", case, rounds))
        print(_cpu_row(install, key))


def _simulated_row(install: Install, key: str, model: str, case: Case, rounds: int) -> str:
    ask(install, key, model, 16 * len(case.cards))  # loads it on every card
    for _ in range(4):  # the front learns how fast they are
        ask(install, key, model, case.items)
    alone, spread = [], []
    for _ in range(rounds):
        alone.append(ask(install, key, "alone", case.items))
        spread.append(ask(install, key, model, case.items))
    one, many = statistics.median(alone), statistics.median(spread)
    return (
        f"| {case.name} | {one:.3f} | {many:.3f} | {one / many:.2f} × | {case.ideal:g} × | ≥ {0.9 * case.ideal:.2f} × |"
    )


def _cpu_row(install: Install, key: str) -> str:
    """The front's whole CPU for requests to two engines that take no time, so that it hardly does anything else."""
    for _ in range(5):
        ask(install, key, "quick", 16 * _QUICK_ITEMS)
    before, front = cpu.cpu_us(install.front_pid()), install.front_pid()
    for _ in range(_QUICK_REQUESTS):
        ask(install, key, "quick", _QUICK_ITEMS)
    planned = post(
        install.port, "/v1/plan", orjson.dumps({"endpoint": "embeddings", "request": _body("quick", 16)}), key
    )
    if len(orjson.loads(planned.body)["plan"]["steps"]) != len(_QUICK) + 2:
        raise StartFailed(f"the requests were not split: {planned.text[:500]}")
    a_part_ms = (cpu.cpu_us(front) - before) / 1000 / _QUICK_REQUESTS / len(_QUICK)
    return f"\nThe front's CPU a part, all of the request included: {a_part_ms:.2f} ms (goal: ≤ 5 ms)"


def main() -> None:
    """Measure, and print the tables."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.fanout", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--items", type=int, default=96, help="inputs of an embeddings request")
    arguments.add_argument("--engines-only", action="store_true", help="leave out the simulated engines")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="coderai-bench-") as scratch:
        if not given.engines_only:
            simulated(Path(scratch), given.rounds)
        real(Path(scratch) / "real", given.rounds, given.items)


if __name__ == "__main__":
    main()
