"""From a launch to a process: the command line of an engine, for the wheel and for a llama-server of the user's own."""

import re
import sys
from typing import Final

from infra.settings import LlamaSettings
from infra.supervisor.types import ChildSpec
from workers.engine.sampling import KNOBS, MAX_TOKENS, sampling
from workers.types import Capability, ModelEntry, Pooling
from workers.wire import LLAMA_TOKEN_VARIABLE, EngineLaunch

STOP_GRACE_S: Final = 5.0
"""Seconds an engine gets after SIGTERM; it has nothing to save."""

_CONTEXT_STEP_TOKENS: Final = 256
_OPTIONAL: Final[tuple[tuple[str, ...], ...]] = (
    ("--no-ui", "--no-webui"),
    ("--no-slots",),
    ("--no-cors-credentials",),
    ("--no-kv-unified",),
    ("--offline",),
    ("--jinja",),
    ("--no-prefill-assistant",),
)
"""Flags that some builds lack or call otherwise: the first one that the build knows is given."""
_REASONS: Final = (
    re.compile(r"gguf_init_from_\w+: (?!failed)(.+)"),
    re.compile(r"error loading model: (.+)"),
    re.compile(r"what\(\): *(.+)"),
    re.compile(r"(GGML_ASSERT.+)"),
    re.compile(r"(.*out of memory.*)", re.IGNORECASE),
    re.compile(r"^error: (.+)"),
)


def child_spec(
    launch: EngineLaunch, settings: LlamaSettings, api_key: str, known_flags: frozenset[str] = frozenset()
) -> ChildSpec:
    """The process that serves `launch`: the wheel's server, or `settings.server_bin` where there is one.

    `known_flags` are the flags that this server_bin has (`workers.engine.flags.read_flags`). The note is the launch,
    so that a restarted front knows what it finds.

    Raises:
        InvalidRequest: the entry sets a sampling parameter that is none.
    """
    entry = launch.entry.model_copy(update={"api_key": None})  # the far service's secret is none of the engine's
    launch = launch.model_copy(update={"entry": entry})
    sampling(entry)
    if settings.server_bin is None:
        argv = [sys.executable, "-m", "workers.engine.llama", "{port}", launch.model_dump_json()]
    else:
        argv = [str(settings.server_bin), *server_arguments(launch, known_flags)]
    return ChildSpec(
        name=launch.engine,
        argv=tuple(argv),
        env={**launch.env, "GGML_NO_BACKTRACE": "1"},
        secret_env={LLAMA_TOKEN_VARIABLE: api_key},
        stop_grace_s=STOP_GRACE_S,
        note=launch.model_dump(mode="json"),
    )


def server_arguments(launch: EngineLaunch, known_flags: frozenset[str]) -> list[str]:
    """llama-server's command line without the program; `{port}` stands for the port."""
    entry, context = launch.entry, slot_context_tokens(launch)
    arguments = ["--model", str(entry.path), "--alias", entry.name, "--host", "127.0.0.1", "--port", "{port}"]
    arguments += ["--parallel", str(launch.slots), "--ctx-size", str(launch.slots * context), "--cont-batching"]
    arguments += ["--threads", str(launch.threads), "--threads-batch", str(launch.threads)]
    arguments += ["--cache-ram", str(launch.cache_ram_mib)]
    layers = 0 if launch.backend == "cpu" else entry.gpu_layers
    if layers >= 0:
        arguments += ["--n-gpu-layers", str(layers)]
    for name, value in sampling(entry).items():
        arguments += ["--predict" if name == MAX_TOKENS else KNOBS[name].flag, str(value)]
    arguments += _pooling_arguments(entry, context)
    for names in _OPTIONAL:
        arguments += [name for name in names if name in known_flags][:1]
    return arguments


def load_deadline_s(weights_bytes: int, settings: LlamaSettings) -> float:
    """Seconds after which a load counts as failed: a base, and the time the slowest acceptable disk needs."""
    return settings.load_base_s + weights_bytes / settings.load_bytes_per_s


def load_failure(log_tail: tuple[str, ...], otherwise: str) -> str:
    """The runtime's own words for why a load failed, out of the last lines it wrote; `otherwise` when it said none."""
    for pattern in _REASONS:
        for line in log_tail:
            if found := pattern.search(line):
                return found.group(1).strip()
    return otherwise


def _pooling_arguments(entry: ModelEntry, context_tokens: int) -> list[str]:
    if entry.pooling is Pooling.RANK:
        arguments = ["--reranking"]
    elif embeds(entry):
        arguments = ["--embeddings"]
        arguments += [] if entry.pooling is None else ["--pooling", entry.pooling.value]
    else:
        return []
    return [*arguments, "--batch-size", str(context_tokens), "--ubatch-size", str(context_tokens)]


def embeds(entry: ModelEntry) -> bool:
    """Whether the engine must return vectors or scores."""
    return Capability.EMBEDDINGS in entry.capabilities or Capability.RERANK in entry.capabilities


def slot_context_tokens(launch: EngineLaunch) -> int:
    """Context of one slot in tokens, rounded up to a multiple of what llama.cpp rounds to."""
    return -(-launch.context_tokens // _CONTEXT_STEP_TOKENS) * _CONTEXT_STEP_TOKENS
