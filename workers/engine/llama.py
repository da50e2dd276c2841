"""The engine process of one GGUF model: llama.cpp's own server, out of the wheel, on a loopback port.

`python -m workers.engine.llama PORT LAUNCH`, LAUNCH being an `EngineLaunch` in JSON; the key that requests must carry
comes in `LLAMA_API_KEY`. SIGTERM ends it at once: nothing here needs saving. What it cannot load, it says in its last
line on standard error; exit code 78 means that another try would end the same way.
"""

import signal
import sys
import time
from pathlib import Path
from typing import Final

import xllamacpp
from pydantic import ValidationError

from infra.errors import InvalidRequest
from infra.settings import handed_over
from infra.supervisor.types import EX_CONFIG
from workers.engine.provider import embeds, slot_context_tokens
from workers.engine.sampling import KNOBS, MAX_TOKENS, sampling
from workers.types import ModelEntry, Pooling
from workers.wire import LLAMA_TOKEN_VARIABLE, EngineLaunch

_WARNINGS = 2  # llama.cpp's verbosity: 0 = answers only, 1 = errors, 2 = warnings, 3 = information
_SPARE_HTTP_THREADS: Final = 4
_LOG_FLUSH_S: Final = 0.2
_MAGIC: Final = b"GGUF"
_POOLING: Final = {
    Pooling.NONE: xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_NONE,
    Pooling.MEAN: xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN,
    Pooling.CLS: xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_CLS,
    Pooling.LAST: xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_LAST,
    Pooling.RANK: xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK,
}


def parameters(launch: EngineLaunch, port: int, api_key: str) -> xllamacpp.CommonParams:
    """The launch in llama.cpp's own words; everything that could open a file, a page or another port is off.

    Raises:
        InvalidRequest: the entry has no path, or a sampling parameter that is none.
    """
    if launch.entry.path is None:
        raise InvalidRequest(f"model {launch.entry.name} has no file; a far service needs no engine process")
    params = xllamacpp.CommonParams()
    params.model.path = str(launch.entry.path)
    params.model_alias = {launch.entry.name}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [api_key]
    params.n_threads_http = launch.slots + _SPARE_HTTP_THREADS
    params.verbosity = _WARNINGS
    params.offline = True
    params.ui = False
    params.cors_credentials = False
    params.cors_origins = "localhost"
    params.endpoint_slots = params.endpoint_props = params.endpoint_metrics = False
    params.use_jinja = True
    params.prefill_assistant = False
    params.warmup = True
    _set_memory(params, launch)
    _set_threads(params, launch.threads)
    _set_sampling(params, launch.entry)
    _set_pooling(params, launch)
    return params


def _set_memory(params: xllamacpp.CommonParams, launch: EngineLaunch) -> None:
    """`n_ctx` is the sum over the slots, each of which owns its part (`kv_unified` off), in steps of 256 tokens."""
    params.n_parallel = launch.slots
    params.n_ctx = launch.slots * slot_context_tokens(launch)
    params.kv_unified = False
    params.cont_batching = True
    params.cache_prompt = True
    params.cache_ram_mib = launch.cache_ram_mib
    params.n_gpu_layers = 0 if launch.backend == "cpu" else launch.entry.gpu_layers
    params.fit_params = params.n_gpu_layers < 0  # measure what fits only where we leave it open


def _set_threads(params: xllamacpp.CommonParams, threads: int) -> None:
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads


def _set_sampling(params: xllamacpp.CommonParams, entry: ModelEntry) -> None:
    values = sampling(entry)
    params.n_predict = values.pop(MAX_TOKENS, -1)
    for name, value in values.items():
        setattr(params.sampling, KNOBS[name].field, value)
    # Values that are marked as the user's are not replaced by those a model file carries.
    for mark in dir(xllamacpp.common_params_sampling_config):
        if mark.startswith("COMMON_PARAMS_SAMPLING_CONFIG_") and not mark.endswith("SAMPLERS"):
            params.sampling.user_sampling_config |= int(getattr(xllamacpp.common_params_sampling_config, mark))


def _set_pooling(params: xllamacpp.CommonParams, launch: EngineLaunch) -> None:
    if not embeds(launch.entry):
        return
    params.embedding = True
    if launch.entry.pooling is not None:
        params.pooling_type = _POOLING[launch.entry.pooling]
    # A text that is pooled is evaluated in one piece, so the batch must hold the longest.
    params.n_batch = params.n_ubatch = slot_context_tokens(launch)


def file_fault(entry: ModelEntry) -> str | None:
    """What is plainly wrong with the model's file, or None: it may still turn out to be unusable."""
    path = entry.path
    if path is None:
        return "it has no path"
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        return f"{error.strerror}"
    if magic != _MAGIC:
        return "it is not a GGUF file"
    if size < entry.weights_bytes and not _is_split(path):
        return f"it has {size} bytes and had {entry.weights_bytes} when it was added: it is incomplete"
    return None


def _is_split(path: Path) -> bool:
    return "-of-" in path.name


def _fail(code: int, sentence: str) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    sys.stderr.flush()
    return code


def main(arguments: list[str]) -> int:
    """Serve until killed; returns an exit code only when that was not to be."""
    try:
        port, launch = int(arguments[0]), EngineLaunch.model_validate_json(arguments[1])
    except (IndexError, ValueError, ValidationError) as error:
        return _fail(EX_CONFIG, f"usage: python -m workers.engine.llama PORT LAUNCH ({type(error).__name__})")
    api_key = handed_over(LLAMA_TOKEN_VARIABLE)
    if not api_key:
        return _fail(EX_CONFIG, f"{LLAMA_TOKEN_VARIABLE} is not set: an engine without a key would serve anybody")
    fault = file_fault(launch.entry)
    if fault is not None:
        return _fail(EX_CONFIG, f"cannot load {launch.entry.path}: {fault}")
    try:
        server = xllamacpp.Server(parameters(launch, port, api_key))
    except InvalidRequest as error:
        return _fail(EX_CONFIG, error.message)
    except RuntimeError:
        time.sleep(_LOG_FLUSH_S)  # llama.cpp writes its log from a thread; our line must be the last
        return _fail(
            1, f"cannot load {launch.entry.path}: llama.cpp refused it; its own words are in the lines before this one"
        )
    sys.stderr.write(f"serving {launch.entry.name} on {server.listening_address}\n")
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
