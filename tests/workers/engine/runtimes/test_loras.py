"""Adapters in a real pipeline: the image is the library's own, and nothing of them stays where none is asked for."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.errors import InvalidRequest
from infra.types import Json
from tests.tiny_diffusers import FAMILIES, FORGIVEN, write_tiny_flux, write_tiny_sd15, write_tiny_sdxl
from tests.tiny_loras import PAIR, safetensors, write_lora

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Already found a `peft_config`:UserWarning"),
    *(pytest.mark.filterwarnings(warning) for warning in FORGIVEN),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_sd15(tmp_path_factory.mktemp("sd15"))


@pytest.fixture(scope="module")
def adapters(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("adapters")
    return {
        "first": write_lora(opened(folder), made / "first.safetensors", rank=4, seed=1),
        "second": write_lora(opened(folder), made / "second.safetensors", rank=2, seed=2),
        "text": write_lora(opened(folder), made / "text.safetensors", part="text_encoder", seed=3),
        "alpha": write_lora(opened(folder), made / "alpha.safetensors", alpha=16, seed=1),
    }


@pytest.fixture
def pipe(folder: Path) -> Any:
    return opened(folder)


def opened(folder: Path) -> Any:
    from diffusers import DiffusionPipeline

    made = DiffusionPipeline.from_pretrained(folder, local_files_only=True)
    made.set_progress_bar_config(disable=True)
    return made


def drawn(pipe: Any) -> Any:
    """The pixels of one image, the same each time."""
    import torch

    generator = torch.Generator().manual_seed(7)
    return pipe("a cat", num_inference_steps=2, height=64, width=64, generator=generator, output_type="np").images


def direct(folder: Path, *adapters: tuple[Path, float]) -> Any:
    """What diffusers itself makes of a fresh pipeline and these adapters."""
    pipe = opened(folder)
    for number, (path, _weight) in enumerate(adapters):
        pipe.load_lora_weights(path.parent, weight_name=path.name, adapter_name=f"a{number}")
    pipe.set_adapters([f"a{number}" for number in range(len(adapters))], [weight for _path, weight in adapters])
    return drawn(pipe)


def named(path: Path, weight: float = 1.0) -> dict[str, Json]:
    return {"path": str(path), "weight": weight, "name": path.stem}


@pytest.fixture
def loras(pipe: Any) -> Any:
    from workers.engine.runtimes.loras import PipelineLoras

    return PipelineLoras(pipe)


def same(one: Any, other: Any) -> bool:
    return bool((one == other).all())


@pytest.mark.parametrize("which", ["first", "alpha"])
def test_an_image_is_what_the_library_itself_draws(
    folder: Path, adapters: dict[str, Path], pipe: Any, loras: Any, which: str
) -> None:
    loras.apply([named(adapters[which], 0.8)])
    assert same(drawn(pipe), direct(folder, (adapters[which], 0.8)))


def test_an_adapter_of_the_text_encoder_is_what_its_matrices_say(
    folder: Path, adapters: dict[str, Path], pipe: Any, loras: Any
) -> None:
    from safetensors.torch import load_file

    loras.apply([named(adapters["text"], 0.7)])
    merged, weights = opened(folder), load_file(adapters["text"])
    for name, down in weights.items():
        if name.endswith(".lora_A.weight"):
            stem = name.removesuffix(".lora_A.weight")
            layer = merged.text_encoder.get_submodule(stem.removeprefix("text_encoder."))
            layer.weight.data += 0.7 * weights[f"{stem}.lora_B.weight"] @ down
    assert abs(drawn(pipe) - drawn(merged)).max() < 1e-4


def test_two_adapters_of_different_rank_work_together(
    folder: Path, adapters: dict[str, Path], pipe: Any, loras: Any
) -> None:
    loras.apply([named(adapters["first"], 0.5), named(adapters["second"], -1.5)])
    assert same(drawn(pipe), direct(folder, (adapters["first"], 0.5), (adapters["second"], -1.5)))


def test_the_weight_and_the_adapter_matter(adapters: dict[str, Path], pipe: Any, loras: Any) -> None:
    images = [drawn(pipe)]
    for which, weight in (("first", 1.0), ("first", 0.5), ("second", 1.0), ("text", 1.0)):
        loras.apply([named(adapters[which], weight)])
        images.append(drawn(pipe))
    assert not any(same(one, other) for number, one in enumerate(images) for other in images[:number])


def test_nothing_stays_of_an_adapter_that_is_not_asked_for(adapters: dict[str, Path], pipe: Any, loras: Any) -> None:
    loras.apply([])
    before = drawn(pipe)
    loras.apply([named(adapters["first"])])
    alone = drawn(pipe)
    loras.apply([named(adapters["text"]), named(adapters["second"])])
    drawn(pipe)
    loras.apply([])
    assert same(drawn(pipe), before)
    loras.apply([named(adapters["first"])])
    assert same(drawn(pipe), alone)


def test_an_adapter_is_read_once_and_the_oldest_makes_room(
    folder: Path, adapters: dict[str, Path], pipe: Any, loras: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.engine.runtimes import loras as module

    read = counted(pipe, monkeypatch)
    monkeypatch.setattr(module, "MOST_LOADED", 2)
    for which in ("first", "second", "first", "text"):
        loras.apply([named(adapters[which])])
    assert len(read) == 3
    assert pipe.get_list_adapters()["unet"] == [read[0]], "the second was used longest ago"
    loras.apply([named(adapters["second"])])
    assert len(read) == 4
    assert same(drawn(pipe), direct(folder, (adapters["second"], 1.0)))


def test_idle_adapters_have_room_by_their_size(
    adapters: dict[str, Path], pipe: Any, loras: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.engine.runtimes import loras as module

    monkeypatch.setattr(module, "MOST_IDLE_BYTES", 0)
    for which in ("first", "second"):
        loras.apply([named(adapters[which])])
    assert len(pipe.get_list_adapters()["unet"]) == 1


def counted(pipe: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the adapters that are loaded from now on."""
    read: list[str] = []
    load: Callable[..., None] = pipe.load_lora_weights

    def counting(*arguments: Any, **more: Any) -> None:
        read.append(more["adapter_name"])
        load(*arguments, **more)

    monkeypatch.setattr(pipe, "load_lora_weights", counting)
    return read


@pytest.mark.parametrize(("family", "part"), [("sdxl", "unet"), ("flux", "transformer"), ("z-image", "transformer")])
def test_every_family_takes_adapters(tmp_path: Path, family: str, part: str) -> None:
    from workers.engine.runtimes.loras import PipelineLoras

    folder = FAMILIES[family](tmp_path / family)
    path = write_lora(opened(folder), tmp_path / "style.safetensors", part=part)
    pipe = opened(folder)
    loras = PipelineLoras(pipe)
    before = drawn(pipe)
    loras.apply([named(path, 0.6)])
    styled = drawn(pipe)
    assert same(styled, direct(folder, (path, 0.6)))
    assert not same(styled, before)
    loras.apply([])
    assert same(drawn(pipe), before)


def misfits(tmp_path: Path) -> dict[str, Path]:
    foreign, torn = tmp_path / "foreign.safetensors", tmp_path / "torn.safetensors"
    foreign.write_bytes(safetensors(PAIR))
    torn.write_bytes(safetensors(PAIR)[:40])
    other = {}
    for name, write, part in (("sdxl", write_tiny_sdxl, "unet"), ("flux", write_tiny_flux, "transformer")):
        other[name] = write_lora(opened(write(tmp_path / name)), tmp_path / f"{name}.safetensors", part=part)
    return {"foreign": foreign, "torn": torn, "gone": tmp_path / "gone.safetensors"} | other


def test_an_adapter_of_another_model_is_refused_and_leaves_nothing(
    adapters: dict[str, Path], pipe: Any, loras: Any, tmp_path: Path
) -> None:
    before = drawn(pipe)
    for name, path in misfits(tmp_path).items():
        with pytest.raises(InvalidRequest, match=f"the LoRA '{name}' does not fit this model") as refused:
            loras.apply([named(adapters["second"]), named(path)])
        assert (refused.value.code, refused.value.param) == ("lora_mismatch", "loras")
        assert str(tmp_path) not in refused.value.message, "where files lie is nobody's business"
        assert same(drawn(pipe), before), name
        loras.apply([])
        assert same(drawn(pipe), before), name
    loras.apply([named(adapters["first"])])
    assert not same(drawn(pipe), before)


def test_a_pickle_is_not_opened(pipe: Any, loras: Any, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "pickle.safetensors"
    torch.save({name: torch.ones(shape) for name, shape in PAIR.items()}, path)
    with pytest.raises(InvalidRequest, match="does not fit"):
        loras.apply([named(path)])


def test_a_model_that_takes_none_says_so(adapters: dict[str, Path]) -> None:
    from workers.engine.runtimes.loras import PipelineLoras

    loras = PipelineLoras(object())
    loras.apply([])
    with pytest.raises(InvalidRequest, match="takes no LoRA"):
        loras.apply([named(adapters["first"])])


def told(path: Path, target: Path, part: str, **fields: Any) -> Path:
    """The same adapter, with such words about itself."""
    from safetensors.torch import load_file, save_file

    weights = load_file(path)
    layers = sorted({name.split(".lora_")[0].removeprefix(f"{part}.") for name in weights})
    words = {"r": 4, "lora_alpha": 4, "target_modules": layers} | fields
    text = json.dumps({f"{part}.{name}": value for name, value in words.items()})
    save_file(weights, target, metadata={"lora_adapter_metadata": text})
    return target


@pytest.mark.parametrize("way", ["pissa", "olora", "eva", "loftq"])
@pytest.mark.parametrize(("which", "part"), [("text", "text_encoder"), ("first", "unet")])
def test_an_adapter_cannot_have_the_model_s_own_weights_changed(
    adapters: dict[str, Path], pipe: Any, loras: Any, tmp_path: Path, which: str, part: str, way: str
) -> None:
    before = drawn(pipe)
    loras.apply([named(told(adapters[which], tmp_path / "a.safetensors", part, init_lora_weights=way))])
    assert not same(drawn(pipe), before)
    loras.apply([])
    assert same(drawn(pipe), before)


@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": "((.+)+)+X"},
        {"target_modules": ["((.+)+)+X"]},
        {"rank_pattern": {"((.+)+)+X": 2}},
        {"alpha_pattern": {"((.+)+)+X": 2}},
        {"r": "4"},
        {"r": 10**9},
        {"lora_alpha": [1]},
        {"rank_pattern": {"a": 0}},
    ],
)
def test_what_an_adapter_says_of_itself_is_looked_at(
    adapters: dict[str, Path], loras: Any, tmp_path: Path, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest, match="does not fit"):
        loras.apply([named(told(adapters["first"], tmp_path / "a.safetensors", "unet", **fields))])


@pytest.mark.parametrize(
    ("which", "part", "more"), [("text", "text_encoder", "out_proj"), ("first", "unet", "to_out.0")]
)
def test_layers_that_are_named_and_not_there_are_no_part_of_it(
    adapters: dict[str, Path], pipe: Any, loras: Any, tmp_path: Path, which: str, part: str, more: str
) -> None:
    names = ["q_proj", "v_proj", more] if part == "text_encoder" else ["to_q", "to_k", "to_v", more]
    path = told(adapters[which], tmp_path / "a.safetensors", part, target_modules=names)
    with contextlib.suppress(InvalidRequest):
        loras.apply([named(path)])
    drawn(pipe)
    path = told(adapters[which], tmp_path / "b.safetensors", part, use_dora=True)
    with contextlib.suppress(InvalidRequest):
        loras.apply([named(path)])
    drawn(pipe)


def test_a_file_that_goes_while_it_is_read_is_no_trouble_later(
    adapters: dict[str, Path], pipe: Any, loras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    shutil.copy(adapters["first"], path)
    load: Callable[..., None] = pipe.load_lora_weights

    def going(*arguments: Any, **more: Any) -> None:
        load(*arguments, **more)
        path.unlink()

    with monkeypatch.context() as patch:
        patch.setattr(pipe, "load_lora_weights", going)
        loras.apply([named(path)])
    alone = drawn(pipe)
    loras.apply([])
    shutil.copy(adapters["first"], path)
    loras.apply([named(path)])
    assert same(drawn(pipe), alone)
