"""Pipelines of diffusers, read without diffusers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from infra.types import Json
from tests.model_folders import PIPELINE, write_json, write_pipeline, write_tensors
from tests.tiny_diffusers import FORGIVEN, write_tiny_flux, write_tiny_sd15, write_tiny_sdxl, write_tiny_z_image
from tests.tiny_wan import write_tiny_wan, write_tiny_wan_i2v
from workers.folders.files import Folder
from workers.folders.pipelines import has_weights, parts_of, read_pipeline
from workers.folders.reading import read_folder
from workers.types import Capability, ModelFormat


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_pipeline(Folder(folder))
    return caught.value.message


def test_what_it_is(tmp_path: Path) -> None:
    facts = read_pipeline(Folder(write_pipeline(tmp_path)))
    assert (facts.format, facts.capabilities) == (ModelFormat.DIFFUSERS, (Capability.IMAGES,))
    assert facts.architecture == "StableDiffusionPipeline"
    parts = (tmp_path / part / "diffusion_pytorch_model.safetensors" for part in ("unet", "vae"))
    assert facts.weights_bytes == sum(part.stat().st_size for part in parts)


def test_variants_and_strangers_are_not_counted(tmp_path: Path) -> None:
    before = read_pipeline(Folder(write_pipeline(tmp_path))).weights_bytes
    for name in ("unet/diffusion_pytorch_model.fp16", "unet/diffusion_pytorch_model.non_ema", "v1-5-pruned"):
        write_tensors(tmp_path / f"{name}.safetensors")
    (tmp_path / "v1-5-pruned.ckpt").write_bytes(b"PK")
    assert read_pipeline(Folder(tmp_path)).weights_bytes == before


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("StableDiffusionXLPipeline", Capability.IMAGES),
        ("StableDiffusionXLImg2ImgPipeline", Capability.IMAGES),
        ("FluxPipeline", Capability.IMAGES),
        ("FluxKontextPipeline", Capability.IMAGES),
        ("ZImagePipeline", Capability.IMAGES),
        ("QwenImagePipeline", Capability.IMAGES),
        ("WanPipeline", Capability.VIDEO),
        ("WanImageToVideoPipeline", Capability.VIDEO),
    ],
)
def test_what_its_class_does(tmp_path: Path, name: str, capability: Capability) -> None:
    write_pipeline(tmp_path, {**PIPELINE, "_class_name": name})
    assert read_pipeline(Folder(tmp_path)).capabilities == (capability,)


@pytest.mark.parametrize("name", ["StableDiffusionUpscalePipeline", "AudioLDMPipeline", "", None, "FluxPipeline; x"])
def test_a_class_that_is_not_served(tmp_path: Path, name: str | None) -> None:
    write_pipeline(tmp_path, {**PIPELINE, "_class_name": name})
    assert "is not served" in refusal(tmp_path)


def test_a_pipeline_with_code_of_its_own(tmp_path: Path) -> None:
    write_pipeline(tmp_path, {**PIPELINE, "_class_name": ["pipeline", "Mine"]})
    assert "never run" in refusal(tmp_path)
    write_pipeline(tmp_path, {**PIPELINE, "unet": ["os", "system"]})
    assert "wants 'unet' from 'os'" in refusal(tmp_path)
    write_pipeline(tmp_path, {**PIPELINE, "../unet": ["diffusers", "UNet2DConditionModel"]})
    assert "no plain name" in refusal(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    (tmp_path / "tokenizer" / "vocab.json").unlink()
    assert "tokenizer has no vocabulary" in refusal(tmp_path)
    write_json(tmp_path / "tokenizer" / "vocab.json", {})
    (tmp_path / "scheduler" / "scheduler_config.json").unlink()
    assert "scheduler_config.json" in refusal(tmp_path)
    write_json(tmp_path / "scheduler" / "scheduler_config.json", {})
    (tmp_path / "vae" / "diffusion_pytorch_model.safetensors").rename(tmp_path / "vae" / "diffusion_pytorch_model.bin")
    assert "Python pickles" in refusal(tmp_path)
    write_json(tmp_path / "model_index.json", {**PIPELINE, "text_encoder": ["transformers", "CLIPTextModel"]})
    assert "text_encoder is missing" in refusal(tmp_path) or "Python pickles" in refusal(tmp_path)
    write_json(tmp_path / "model_index.json", {"_class_name": "FluxPipeline"})
    assert "names no parts" in refusal(tmp_path)


def test_parts_are_folders_and_not_values() -> None:
    index: dict[str, Json] = {
        **PIPELINE,
        "boundary_ratio": 0.9,
        "transformer_2": [None, None],
        "force_zeros": [None, True],
    }
    assert set(parts_of(Folder(Path("x")), index)) == {"scheduler", "tokenizer", "unet", "vae"}


@pytest.mark.parametrize(
    ("kind", "has"),
    [("UMT5EncoderModel", True), ("T5TokenizerFast", False), ("TokenizersBackend", False), ("AutoencoderKLWan", True),
     ("UniPCMultistepScheduler", False), ("CLIPFeatureExtractor", False), ("CLIPImageProcessor", False)],
)  # fmt: skip
def test_which_parts_have_weights(kind: str, has: bool) -> None:
    assert has_weights(kind) is has


@pytest.mark.slow
@pytest.mark.filterwarnings(*FORGIVEN)
@pytest.mark.parametrize(
    ("write", "capability"),
    [
        (write_tiny_sd15, Capability.IMAGES),
        (write_tiny_sdxl, Capability.IMAGES),
        (write_tiny_flux, Capability.IMAGES),
        (write_tiny_z_image, Capability.IMAGES),
        (write_tiny_wan, Capability.VIDEO),
        (write_tiny_wan_i2v, Capability.VIDEO),
    ],
)
def test_what_diffusers_itself_has_written(
    tmp_path: Path, write: Callable[[Path], Path], capability: Capability
) -> None:
    facts = read_folder(write(tmp_path))
    assert (facts.format, facts.capabilities) == (ModelFormat.DIFFUSERS, (capability,))
    assert facts.weights_bytes == sum(sizes_in(tmp_path))


def sizes_in(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*.safetensors")]
