"""Which folders become a pipeline, and which never do."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from infra.errors import LoadFailed
from tests.fakes import make_entry
from tests.tiny_diffusers import FORGIVEN, write_tiny_sd15
from tests.workers.engine.launches import launch_of
from workers.types import Capability, ModelFormat
from workers.wire import EngineLaunch

pytestmark = [pytest.mark.slow, *(pytest.mark.filterwarnings(warning) for warning in FORGIVEN)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_sd15(tmp_path_factory.mktemp("pipeline") / "sd15")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A pipeline to be harmed."""
    return shutil.copytree(original, tmp_path / "pipeline")


def launch(folder: Path, **fields: Any) -> EngineLaunch:
    return launch_of(make_entry(path=folder, format=ModelFormat.DIFFUSERS, capabilities=(Capability.IMAGES,), **fields))


def load(folder: Path, **fields: Any) -> Any:
    from diffusers import AutoPipelineForText2Image

    from workers.engine.runtimes.pipelines import load_pipeline

    return load_pipeline(AutoPipelineForText2Image, launch(folder, **fields))


def change(folder: Path, **values: Any) -> None:
    path = folder / "model_index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def save_as(folder: Path, dtype: str) -> None:
    import torch
    from diffusers import AutoPipelineForText2Image

    pipe = AutoPipelineForText2Image.from_pretrained(folder, dtype=getattr(torch, dtype))
    pipe.save_pretrained(folder, variant="fp16" if dtype == "float16" else None)
    if dtype == "float16":
        for file in folder.rglob("*.safetensors"):
            if ".fp16" not in file.name:
                file.unlink()


def test_weights_stay_as_they_were_stored_on_the_processor(folder: Path) -> None:
    import torch

    assert load(folder, offload="model").unet.dtype == torch.float32  # there is nowhere to put them aside to
    save_as(folder, "bfloat16")
    assert load(folder).unet.dtype == torch.bfloat16


def test_a_folder_of_halves_alone(folder: Path) -> None:
    import torch

    save_as(folder, "float16")
    assert load(folder).unet.dtype == torch.bfloat16


def test_pickles_are_never_opened(folder: Path) -> None:
    import torch

    for part in ("unet", "vae", "text_encoder"):
        (weights,) = (folder / part).glob("*.safetensors")
        kept = weights.read_bytes()
        weights.unlink()
        name = "pytorch_model.bin" if part == "text_encoder" else "diffusion_pytorch_model.bin"
        torch.save({}, folder / part / name)
        with pytest.raises(LoadFailed, match="diffusers cannot load"):
            load(folder)
        (folder / part / name).unlink()
        weights.write_bytes(kept)
    load(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"unet": ["subprocess", "Popen"]},
        {"unet": ["my_code", "UNet"]},
        {"unet": ["os", None]},
        {"_class_name": ["pipeline", "Mine"]},
        {"_class_name": None},
    ],
)
def test_code_of_the_model_s_own_is_refused(folder: Path, values: dict[str, Any]) -> None:
    (folder / "pipeline.py").write_text("raise SystemExit('it ran')")
    (folder / "unet" / "my_code.py").write_text("raise SystemExit('it ran')")
    change(folder, **values)
    with pytest.raises(LoadFailed):
        load(folder)


def test_a_folder_that_is_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="is no pipeline's folder"):
        load(tmp_path / "nowhere")
    (folder / "model_index.json").write_text("[]")
    with pytest.raises(LoadFailed, match="does not name a pipeline"):
        load(folder)
    change_to = {"_class_name": "NoSuchPipeline"}
    (folder / "model_index.json").write_text(json.dumps(change_to))
    with pytest.raises(LoadFailed, match="diffusers cannot load"):
        load(folder)


def test_a_card_that_torch_cannot_use(folder: Path) -> None:
    import torch

    from workers.engine.runtimes.pipelines import device_of

    on_card = launch(folder).model_copy(update={"backend": "cuda"})
    if torch.cuda.is_available():
        assert device_of(on_card).type == "cuda"
    else:
        with pytest.raises(LoadFailed, match="cannot use cuda cards"):
            device_of(on_card)
