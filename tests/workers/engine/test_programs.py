"""Which program serves which format."""

from pathlib import Path

from infra.settings import LlamaSettings
from tests.fakes import make_entry
from tests.workers.engine.launches import launch_of
from workers.engine.programs import program
from workers.types import Capability, ModelFormat
from workers.wire import EngineLaunch

KEY = "the-engine-key"


def test_a_gguf_is_llama_s() -> None:
    spec = program(launch_of(make_entry()), LlamaSettings(), KEY)
    assert "workers.engine.llama" in spec.argv


def test_another_format_is_its_runtime_s_even_beside_an_own_llama_server() -> None:
    entry = make_entry(format=ModelFormat.WHISPER, capabilities=(Capability.STT,))
    launch = launch_of(entry)
    spec = program(launch, LlamaSettings(server_bin=Path("/opt/llama-server")), KEY)
    assert spec.argv[1:4] == ("-m", "workers.engine.app", "{port}")
    assert EngineLaunch.model_validate_json(spec.argv[4]) == launch == EngineLaunch.model_validate(spec.note)
    assert KEY not in " ".join(spec.argv)
    assert spec.secret_env == {"LLAMA_API_KEY": KEY}


def test_its_libraries_ask_no_hub_and_draw_no_bars() -> None:
    entry = make_entry(format=ModelFormat.SENTENCE_TRANSFORMERS, capabilities=(Capability.EMBEDDINGS,))
    env = program(launch_of(entry), LlamaSettings(), KEY).env
    assert {"HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS"} <= env.keys()
    assert (env["HF_HUB_DISABLE_TELEMETRY"], env["ORT_DISABLE_TELEMETRY"]) == ("1", "1")
    assert env["TOKENIZERS_PARALLELISM"] == "false"
