"""Other gateways to stand beside, each in a venv of its own below `${XDG_CACHE_HOME:-~/.cache}/coderai/bench`.

A peer that does not install here is a row of the table, not the end of the run.
"""

import fcntl
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import cache_dir, clean_environment, free_port
from benchmarks.upstream import MODEL

_INSTALL_LIMIT_S = 1800.0


class NotInstalled(Exception):
    """pip could not bring it; the message is pip's last line."""


@dataclass(frozen=True)
class Launch:
    """How to start a peer: `api_key` is what its clients send."""

    argv: list[str]
    env: dict[str, str]
    api_key: str = ""


@dataclass(frozen=True)
class Peer:
    """A gateway from the package index, at a fixed version. `health` answers 200 once it serves."""

    name: str
    requirement: str
    health: str
    start_within_s: float
    launch: Callable[[Path, int, int, Path], Launch]
    """(the venv's bin, own port, the upstream's port, a scratch folder) -> how to start it."""


def _vllm_router(bin_dir: Path, port: int, upstream: int, scratch: Path) -> Launch:
    loopback = ["--host", "127.0.0.1", "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    where = ["--port", str(port), "--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", "round_robin"]
    return Launch([str(bin_dir / "vllm-router"), *loopback, *where, "--log-level", "warning"], clean_environment())


def _litellm(bin_dir: Path, port: int, upstream: int, scratch: Path) -> Launch:
    config = scratch / "litellm.yaml"
    config.write_text(
        "model_list:\n"
        f"  - model_name: {MODEL}\n"
        "    litellm_params:\n"
        f"      model: openai/{MODEL}\n"
        f"      api_base: http://127.0.0.1:{upstream}/v1\n"
        "      api_key: none\n"
        "general_settings:\n"
        "  master_key: os.environ/LITELLM_MASTER_KEY\n"
    )
    key = "sk-" + secrets.token_hex(16)
    env = clean_environment(LITELLM_MASTER_KEY=key, LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOG="ERROR")
    argv = [str(bin_dir / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    return Launch([*argv, "--num_workers", "1", "--telemetry", "False"], env, key)


PEERS = (
    Peer("vllm-router", "vllm-router==0.1.17", "/health", 60.0, _vllm_router),
    Peer("litellm", "litellm[proxy]==1.106.12", "/health/liveliness", 240.0, _litellm),
)


def installed(peer: Peer) -> Path:
    """The `bin` folder of the peer's venv, made on the first call; two runs at once wait for each other.

    Raises:
        NotInstalled: pip failed.
    """
    folder = cache_dir("bench")
    venv, done = folder / peer.name, folder / f"{peer.name}.installed"
    with (folder / f"{peer.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != peer.requirement:
            print(f"installing {peer.requirement} into {venv}", file=sys.stderr, flush=True)
            _run([sys.executable, "-m", "venv", "--clear", str(venv)])
            _run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", peer.requirement])
            done.write_text(peer.requirement)
    return venv / "bin"


def _run(argv: list[str]) -> None:
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"not done after {_INSTALL_LIMIT_S:.0f} s") from error
    if ran.returncode:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled((errors or ran.stderr.splitlines() or ["pip failed without a word"])[-1])
