"""Which program serves a launch: llama.cpp for a GGUF, the engine process of the format's runtime for all else."""

import sys

from infra.settings import LlamaSettings
from infra.supervisor.types import ChildSpec
from workers.engine.provider import STOP_GRACE_S, child_spec
from workers.types import ModelFormat
from workers.wire import LLAMA_TOKEN_VARIABLE, EngineLaunch

_ONE_THREAD = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
"""Threads of numerical libraries that wait by spinning would take the cores from the other engines."""

_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "ORT_DISABLE_TELEMETRY": "1"}
"""What a model needs lies on this machine: no library asks a hub for it, or tells anybody of us (onnxruntime's official
builds report to Microsoft unless they are told not to)."""

_QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""A log has no use for bars, and tokenizers would start a thread for each core."""


def program(
    launch: EngineLaunch, settings: LlamaSettings, api_key: str, known_flags: frozenset[str] = frozenset()
) -> ChildSpec:
    """The process that serves `launch`; `known_flags` as for `workers.engine.provider.child_spec`.

    Raises:
        InvalidRequest: the entry sets a parameter that is none.
    """
    if launch.entry.format is ModelFormat.GGUF:
        return child_spec(launch, settings, api_key, known_flags)
    entry = launch.entry.model_copy(update={"api_key": None})
    launch = launch.model_copy(update={"entry": entry})
    return ChildSpec(
        name=launch.engine,
        argv=(sys.executable, "-m", "workers.engine.app", "{port}", launch.model_dump_json()),
        env={**_ONE_THREAD, **_OFFLINE, **_QUIET, **launch.env},
        secret_env={LLAMA_TOKEN_VARIABLE: api_key},
        stop_grace_s=STOP_GRACE_S,
        note=launch.model_dump(mode="json"),
    )
