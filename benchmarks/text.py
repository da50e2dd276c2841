"""Real text: the front against its own engine asked directly, in one run: `python -m benchmarks.text`.

Four chats at once, rounds alternated, tokens a second compared; and a conversation's second turn, whose prompt the
engine has mostly seen. SmolLM2 from its package, on whatever this machine computes with.
"""

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from benchmarks.exchange import post, stream
from benchmarks.ours import Install
from benchmarks.processes import StartFailed
from workers.packaged import PACKAGED, prepare_one
from workers.wire import LLAMA_TOKEN_VARIABLE

MODEL = "chat"
CHATS = 4
_PATH = "/v1/chat/completions"
CONFIG = '[[model]]\nname = "{name}"\npath = "{path}"\nmax_instances = {slots}\n'
_FILLER = "The {number}th traveller of caravan {mark} carried salt, two lamps and a letter that nobody had opened. "


@dataclass(frozen=True)
class Side:
    """One way to reach the engine."""

    name: str
    port: int
    key: str


@dataclass(frozen=True)
class Turn:
    """Time to the first token as the client sees it, and the engine's own prompt time where it gave one; seconds."""

    first_token_s: float
    prompt_s: float | None
    text: str


def engine_of(install: Install) -> Side:
    """The engine process behind the front: the one that has an engine's key in its environment and a port.

    Raises:
        StartFailed: there is none.
    """
    for process in psutil.Process(install.pid).children(recursive=True):
        key = process.environ().get(LLAMA_TOKEN_VARIABLE)
        ports = [each.laddr[1] for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        if key and ports:
            return Side("engine", ports[0], key)
    raise StartFailed(f"no process below {install.pid} has {LLAMA_TOKEN_VARIABLE} and listens")


def _chat(side: Side, prompt: str, max_tokens: int) -> int:
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens}
    answer = post(side.port, _PATH, orjson.dumps({**body, "temperature": 0, "top_p": 1}), side.key, within_s=600)
    if answer.status != 200:
        raise StartFailed(f"{side.name} answered {answer.status}: {answer.text[:500]}")
    tokens: int = orjson.loads(answer.body)["usage"]["completion_tokens"]
    return tokens


def tokens_per_s(side: Side, mark: str, max_tokens: int) -> float:
    """Tokens a second of four chats at once; `mark` keeps the prompts apart from all earlier ones."""
    prompts = [f"{mark}-{number}: tell a long story about a river and its people." for number in range(CHATS)]
    started = time.perf_counter()
    with ThreadPoolExecutor(CHATS) as pool:
        tokens = sum(pool.map(lambda prompt: _chat(side, prompt, max_tokens), prompts))
    return tokens / (time.perf_counter() - started)


def _turn(side: Side, messages: list[dict[str, str]]) -> Turn:
    body = {"model": MODEL, "messages": messages, "max_tokens": 16, "temperature": 0, "stream": True}
    started = time.perf_counter()
    first, prompt_s, text = 0.0, None, ""
    for data in stream(side.port, _PATH, orjson.dumps(body), side.key, within_s=600):
        event = orjson.loads(data)
        delta = event["choices"][0]["delta"].get("content") if event.get("choices") else None
        if delta:
            first = first or time.perf_counter()
            text += delta
        if "timings" in event:
            prompt_s = event["timings"]["prompt_ms"] / 1000
    return Turn(first - started, prompt_s, text)


def two_turns(side: Side, mark: str, sentences: int) -> tuple[Turn, Turn]:
    """A long first prompt, then a short question after its answer."""
    story = "".join(_FILLER.format(number=number, mark=mark) for number in range(1, sentences + 1))
    messages = [{"role": "user", "content": f"{story}What did they carry?"}]
    first = _turn(side, messages)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And the letter?"}]
    return first, _turn(side, messages)


def _throughput(sides: tuple[Side, Side], rounds: int, max_tokens: int) -> None:
    speeds: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            speeds[side.name].append(tokens_per_s(side, f"{side.name} {number}", max_tokens))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    front, engine = (medians[side.name] for side in sides)
    ratio = statistics.median(a / b for a, b in zip(*speeds.values(), strict=True))
    print(f"| {CHATS} chats at once, tokens/s | {front:.1f} | {engine:.1f} | {ratio:.3f} × | ≥ 0.95 × |")


def _turns(sides: tuple[Side, Side], rounds: int, sentences: int) -> None:
    shares: dict[str, list[float]] = {side.name: [] for side in sides}
    prompts: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides:
            first, second = two_turns(side, f"{side.name} {number}", sentences)
            shares[side.name].append(second.first_token_s / first.first_token_s)
            if first.prompt_s and second.prompt_s:
                prompts[side.name].append(second.prompt_s / first.prompt_s)
    print(_share_row("second turn ÷ first, time to first token", sides, shares))
    print(_share_row("second turn ÷ first, the engine's prompt time", sides, prompts))


def _share_row(name: str, sides: tuple[Side, Side], shares: dict[str, list[float]]) -> str:
    cells = [f"{statistics.median(shares[side.name]):.1%}" if shares[side.name] else "–" for side in sides]
    return f"| {name} | {' | '.join(cells)} | | ≤ 10 % |"


def main() -> None:
    """Start an install with the real model, measure, print one table."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.text", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--max-tokens", type=int, default=64)
    arguments.add_argument("--sentences", type=int, default=25, help="length of the first prompt; 24 tokens each")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="coderai-bench-") as scratch:
        home = Path(scratch) / "home"
        path = weights(home)
        config = CONFIG.format(name=MODEL, path=path, slots=CHATS)
        install = Install(home, {"MODELS__PACKAGED": "false", "FLOWS__SERVER": "off"}, config)
        key = install.create_key("bench")
        with install:
            install.wait_until_served(MODEL, key)
            sides = (Side("front", install.port, key), engine_of(install))
            print("| what | front | engine asked directly | front ÷ engine | goal |\n|---|---:|---:|---:|---:|")
            _throughput(sides, given.rounds, given.max_tokens)
            _turns(sides, given.rounds, given.sentences)


def weights(home: Path, name: str = "smollm2-135m-instruct") -> Path:
    """A packaged model's file, in the folder that an install may serve from."""
    packaged = next(each for each in PACKAGED if each.name == name)
    models = home / "models"
    models.mkdir(parents=True)
    return Path(shutil.copy(asyncio.run(prepare_one(packaged, home)), models))


if __name__ == "__main__":
    main()
