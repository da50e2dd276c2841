"""From a launch to a command line."""

import sys
from pathlib import Path
from typing import Literal

import pytest
from pydantic import SecretStr

from infra.errors import InvalidRequest
from infra.settings import LlamaSettings
from infra.types import EngineId, ModelName, PoolId
from workers.engine.provider import child_spec, load_deadline_s, load_failure, server_arguments, slot_context_tokens
from workers.types import Capability, ModelEntry, ModelFormat, Pooling
from workers.wire import EngineLaunch

KEY = "an-internal-key-of-ours"
CHAT = (Capability.CHAT, Capability.COMPLETIONS)


def launch(
    *capabilities: Capability,
    pooling: Pooling | None = None,
    backend: Literal["cuda", "cpu"] = "cpu",
    gpu_layers: int = -1,
    context_tokens: int = 1000,
) -> EngineLaunch:
    entry = ModelEntry(
        name=ModelName("tiny"),
        format=ModelFormat.GGUF,
        capabilities=capabilities or CHAT,
        path=Path("/m/tiny.gguf"),
        pooling=pooling,
        gpu_layers=gpu_layers,
        api_key=SecretStr("somebody-elses"),
    )
    return EngineLaunch(
        engine=EngineId("cpu/tiny"),
        entry=entry,
        pool=PoolId("cpu"),
        backend=backend,
        env={"CUDA_VISIBLE_DEVICES": "1"},
        slots=4,
        context_tokens=context_tokens,
        threads=3,
        cache_ram_mib=64,
    )


def follows(arguments: list[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_the_wheels_process() -> None:
    spec = child_spec(launch(), LlamaSettings(), KEY)
    assert spec.name == "cpu/tiny"
    assert spec.argv[:4] == (sys.executable, "-m", "workers.engine.llama", "{port}")
    assert spec.secret_env == {"LLAMA_API_KEY": KEY}
    assert spec.env == {"CUDA_VISIBLE_DEVICES": "1", "GGML_NO_BACKTRACE": "1"}
    assert EngineLaunch.model_validate_json(spec.argv[4]) == EngineLaunch.model_validate(spec.note)


def test_no_secret_is_visible() -> None:
    shown = repr(child_spec(launch(), LlamaSettings(), KEY))
    assert KEY not in shown
    assert "somebody-elses" not in shown


def test_a_bad_entry_fails_before_anything_starts() -> None:
    bad = launch()
    entry = bad.entry.model_copy(update={"sampling": {"heat": 1}})
    with pytest.raises(InvalidRequest, match="heat"):
        child_spec(bad.model_copy(update={"entry": entry}), LlamaSettings(), KEY)


def test_a_llama_server_of_ones_own() -> None:
    settings = LlamaSettings(server_bin=Path("/opt/llama/llama-server"))
    argv = list(child_spec(launch(backend="cuda", gpu_layers=20), settings, KEY).argv)
    assert argv[:3] == ["/opt/llama/llama-server", "--model", "/m/tiny.gguf"]
    assert (follows(argv, "--host"), follows(argv, "--port")) == ("127.0.0.1", "{port}")
    assert (follows(argv, "--parallel"), follows(argv, "--ctx-size")) == ("4", "4096")
    assert (follows(argv, "--temp"), follows(argv, "--min-p")) == ("0.8", "0.05")
    assert (follows(argv, "--n-gpu-layers"), follows(argv, "--alias")) == ("20", "tiny")
    assert "--embeddings" not in argv
    assert KEY not in " ".join(argv)


def test_layers_are_left_open_or_none() -> None:
    assert "--n-gpu-layers" not in server_arguments(launch(backend="cuda"), frozenset())
    assert follows(server_arguments(launch(gpu_layers=20), frozenset()), "--n-gpu-layers") == "0"


def test_pooled_texts_fit_into_one_batch() -> None:
    embedding = server_arguments(launch(Capability.EMBEDDINGS, pooling=Pooling.CLS), frozenset())
    assert (follows(embedding, "--pooling"), follows(embedding, "--ubatch-size")) == ("cls", "1024")
    ranking = server_arguments(launch(Capability.RERANK, pooling=Pooling.RANK), frozenset())
    assert "--reranking" in ranking
    assert "--embeddings" not in ranking


def test_optional_flags_are_given_where_the_build_knows_them() -> None:
    old = server_arguments(launch(), frozenset({"--no-webui", "--jinja"}))
    new = server_arguments(launch(), frozenset({"--no-webui", "--no-ui", "--no-slots", "--no-kv-unified"}))
    assert ("--no-webui" in old, "--no-ui" in old, "--jinja" in old, "--no-slots" in old) == (True, False, True, False)
    assert ("--no-webui" in new, "--no-ui" in new, "--no-slots" in new) == (False, True, True)


@pytest.mark.parametrize(("asked", "given"), [(1, 256), (256, 256), (257, 512), (8192, 8192)])
def test_a_slots_context_is_never_less_than_asked(asked: int, given: int) -> None:
    assert slot_context_tokens(launch(context_tokens=asked)) == given


def test_the_deadline_grows_with_the_weights() -> None:
    settings = LlamaSettings(load_base_s=60, load_bytes_per_s=50e6)
    assert load_deadline_s(0, settings) == 60
    assert load_deadline_s(5_000_000_000, settings) == 160


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ("I loading", "0.1 E llama_model_load: error loading model: tensor 'x' data is not within", "bye"),
            "tensor '",
        ),
        (("0.1 E gguf_init_from_reader: invalid magic characters: 'abcd'", "E x: error loading model: y"), "invalid m"),
        (("terminate called", "  what():  std::bad_alloc"), "std::bad_alloc"),
        (("ggml.c:1: GGML_ASSERT(a == b) failed",), "GGML_ASSERT(a == b) failed"),
        (("CUDA error: out of memory", "more"), "CUDA error: out of memory"),
        (("error: cannot load /x: it is not a GGUF file",), "cannot load /x: it is"),
        ((), "killed by SIGKILL"),
    ],
)
def test_the_runtimes_own_words_are_found(lines: tuple[str, ...], reason: str) -> None:
    assert load_failure(lines, "killed by SIGKILL").startswith(reason)
