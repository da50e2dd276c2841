"""Which files of a repository are fetched, by listings like the hub's."""

import orjson
import pytest

from infra.errors import InvalidRequest
from infra.types import HubId, Json
from tests.model_folders import PIPELINE
from workers.snapshots import choose_folder, index_of

REPO = HubId("own/repo")
MINILM = [
    ".gitattributes", "1_Pooling/config.json", "README.md", "config.json", "config_sentence_transformers.json",
    "data_config.json", "model.safetensors", "modules.json", "onnx/model.onnx", "openvino/openvino_model.bin",
    "pytorch_model.bin", "rust_model.ot", "sentence_bert_config.json", "special_tokens_map.json", "tf_model.h5",
    "tokenizer.json", "tokenizer_config.json", "train_script.py", "vocab.txt",
]  # fmt: skip
"""sentence-transformers/all-MiniLM-L6-v2, as the hub lists it."""
MODULES: Json = [{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Normalize"}]
UNET = "unet/diffusion_pytorch_model"
SD15 = [
    "README.md", "feature_extractor/preprocessor_config.json", "model_index.json", "safety_checker/config.json",
    "safety_checker/model.safetensors", "scheduler/scheduler_config.json", "tokenizer/merges.txt",
    "tokenizer/tokenizer_config.json", "tokenizer/vocab.json", "unet/config.json", f"{UNET}.bin", f"{UNET}.fp16.bin",
    f"{UNET}.fp16.safetensors", f"{UNET}.non_ema.safetensors", f"{UNET}.safetensors", "v1-5-pruned.ckpt",
    "v1-5-pruned.safetensors", "vae/config.json", "vae/diffusion_pytorch_model.bin",
    "vae/diffusion_pytorch_model.fp16.safetensors", "vae/diffusion_pytorch_model.safetensors", "sample.png",
]  # fmt: skip
"""Like stable-diffusion-v1-5/stable-diffusion-v1-5."""
SMALL = {
    "model_index.json", "scheduler/scheduler_config.json", "tokenizer/merges.txt", "tokenizer/tokenizer_config.json",
    "tokenizer/vocab.json", "unet/config.json", "vae/config.json",
}  # fmt: skip


def chosen(paths: list[str], variant: str | None = None, index: Json = None) -> dict[str, str]:
    return choose_folder(REPO, paths, variant, None if index is None else orjson.dumps(index))


def refusal(paths: list[str], variant: str | None = None, index: Json = None) -> str:
    with pytest.raises(InvalidRequest) as caught:
        chosen(paths, variant, index)
    return caught.value.message


def same(*paths: str) -> dict[str, str]:
    return {path: path for path in paths}


def test_a_model_of_sentence_transformers() -> None:
    assert index_of(MINILM) == "modules.json"
    assert chosen(MINILM, index=MODULES) == same(
        "1_Pooling/config.json", "config.json", "config_sentence_transformers.json", "data_config.json",
        "model.safetensors", "modules.json", "sentence_bert_config.json", "special_tokens_map.json", "tokenizer.json",
        "tokenizer_config.json", "vocab.txt",
    )  # fmt: skip


def test_a_plain_encoder_in_shards() -> None:
    shards = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    paths = ["config.json", "vocab.txt", "model.safetensors.index.json", "pytorch_model.bin.index.json", *shards]
    assert index_of(paths) is None
    assert chosen(paths) == same("config.json", "vocab.txt", "model.safetensors.index.json", *shards)
    assert chosen([*paths, "model.safetensors"]) == same("config.json", "vocab.txt", "model.safetensors")


def test_a_pipeline_s_own_folders_and_plain_weights() -> None:
    assert index_of(SD15) == "model_index.json"
    plain = [f"{UNET}.safetensors", "vae/diffusion_pytorch_model.safetensors"]
    assert chosen(SD15, index=PIPELINE) == same(*SMALL, *plain)


def test_a_variant_gets_the_plain_name() -> None:
    parts = ("unet", "vae")
    halves = {
        f"{part}/diffusion_pytorch_model.safetensors": f"{part}/diffusion_pytorch_model.fp16.safetensors"
        for part in parts
    }
    assert chosen(SD15, "fp16", PIPELINE) == same(*SMALL) | halves
    without = [path for path in SD15 if path not in halves and "non_ema" not in path]
    assert chosen(without, None, PIPELINE) == same(*SMALL) | halves
    assert "there is no bf16 of it" in refusal(SD15, "bf16", PIPELINE)
    several = [path for path in SD15 if path not in halves]
    assert "variants fp16, non_ema: name one" in refusal(several, None, PIPELINE)


def test_a_variant_in_shards_keeps_the_names_that_its_index_has() -> None:
    shards = [f"{UNET}.fp16-0000{part}-of-00002.safetensors" for part in (1, 2)]
    index = f"{UNET}.safetensors.index.fp16.json"
    only: dict[str, Json] = {"_class_name": "FluxPipeline", "unet": ["diffusers", "UNet2DConditionModel"]}
    found = chosen(["model_index.json", "unet/config.json", index, *shards], "fp16", only)
    assert found == same("model_index.json", "unet/config.json", *shards) | {f"{UNET}.safetensors.index.json": index}


def test_whisper_of_ctranslate2() -> None:
    files = ["config.json", "model.bin", "tokenizer.json", "vocabulary.txt"]
    assert chosen([*files, "README.md", ".gitattributes"]) == same(*files)


def test_a_voice_is_named_where_there_are_several() -> None:
    ann, ben = "en/en_GB/ann/low/en_GB-ann-low.onnx", "en/en_GB/ben/low/en_GB-ben-low.onnx"
    paths = [ann, f"{ann}.json", ben, f"{ben}.json", "half.onnx.json", "voices.json"]
    assert chosen(paths, "en_GB-ben-low") == {"en_GB-ben-low.onnx": ben, "en_GB-ben-low.onnx.json": f"{ben}.json"}
    assert "There is: en_GB-ann-low, en_GB-ben-low" in refusal(paths)
    assert "There is: en_GB-ann-low, en_GB-ben-low" in refusal(paths, "half")
    assert set(chosen([ann, f"{ann}.json"])) == {"en_GB-ann-low.onnx", "en_GB-ann-low.onnx.json"}
    many = [f"v{number}.onnx{end}" for number in range(30) for end in ("", ".json")]
    assert "and 10 more" in refusal(many)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["README.md"], "neither a GGUF file nor a model's folder"),
        (["config.json", "vocab.txt", "pytorch_model.bin"], "no safetensors where it has pytorch_model.bin"),
        (["config.json", "flax_model.msgpack"], "no safetensors where it has flax_model.msgpack"),
    ],
)
def test_what_is_not_served(paths: list[str], words: str) -> None:
    assert words in refusal(paths)


@pytest.mark.parametrize("index", [b"", b"[", b"7", b"[" * 100_000])
def test_an_index_that_is_none(index: bytes) -> None:
    with pytest.raises(InvalidRequest, match="an index that is no JSON"):
        choose_folder(REPO, SD15, None, index)


def test_parts_that_lead_elsewhere() -> None:
    assert "no plain name" in refusal(SD15, None, {**PIPELINE, "../x": ["diffusers", "UNet2DConditionModel"]})
    assert "neither diffusers'" in refusal(SD15, None, {**PIPELINE, "unet": ["os", "system"]})
    assert "no plain name" in refusal(MINILM, None, [{"path": "../1_Pooling"}])
