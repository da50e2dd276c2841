"""models.json of the older system: what maps is taken, everything else is named."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.database import Database, open_database
from infra.errors import InvalidRequest
from infra.migrate import migrate
from infra.settings import Settings
from tests.model_folders import write_pipeline, write_voice
from tests.tiny_gguf import write_tiny_embedder, write_tiny_llama
from workers.catalogue import Catalogue
from workers.catalogue_rows import ModelRows
from workers.folders.reading import read_model
from workers.importing import ImportReport, import_models
from workers.types import Capability, Distribute


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/coderai.db")
    migrate(opened)
    yield opened
    opened.close()


class Install:
    """An install that can import."""

    def __init__(self, home: Path, database: Database) -> None:
        self.settings = Settings(home=home, model=({"name": "declared", "service_url": "http://x"},))
        self.database = database
        self.rows = ModelRows(self.settings, database)

    def take(self, document: object, *, trusted: bool = True, dry_run: bool = False) -> ImportReport:
        content = document if isinstance(document, bytes) else json.dumps(document)
        return import_models(content, self.rows, read_model, trusted=trusted, dry_run=dry_run)

    def catalogue(self) -> Catalogue:
        return Catalogue.load(self.settings, self.database, ())


@pytest.fixture
def install(tmp_path: Path, database: Database) -> Install:
    return Install(tmp_path, database)


def reasons(report: ImportReport) -> dict[tuple[str, str | None], str]:
    return {(one.entry, one.key): one.reason for one in report.not_taken}


def test_a_whole_file(install: Install, tmp_path: Path) -> None:
    llama, embedder = write_tiny_llama(tmp_path / "tiny.gguf"), write_tiny_embedder(tmp_path / "embedder.gguf")
    report = install.take(
        {
            "text_models": [
                {
                    "path": "/AI/guffcache/gemma-4-31B-Q4_0.gguf",
                    "service_url": "http://gpu-box:8080/v1",
                    "served_model": "gemma-4-31b",
                    "api_key": "sk-hush",
                    "max_instances": 2,
                    "queue_max_waiting": 5,
                },
                {"id": "Qwen/Qwen3-8B", "load_in_4bit": True},
                {"name": "off", "path": str(llama), "enabled": False},
            ],
            "gguf_models": [
                {"name": "tiny", "alias": "t", "path": str(llama), "engine": "cuda0", "n_gpu_layers": 20},
                str(llama),
                {"name": "gone", "path": str(tmp_path / "gone.gguf")},
            ],
            "embedding_models": [{"path": str(embedder), "keep_resident": True}],
            "image_models": [{"id": "stabilityai/sdxl"}],
            "notes": ["x"],
        }
    )
    assert report.added == ("gemma-4-31B-Q4_0", "tiny", "embedder")
    catalogue = install.catalogue()
    far = catalogue.get("gemma-4-31B-Q4_0")
    assert (far.service_url, far.served_model, far.max_instances, far.queue_max_waiting) == (
        "http://gpu-box:8080", "gemma-4-31b", 2, 5,
    )  # fmt: skip
    assert far.api_key is not None
    assert far.api_key.get_secret_value() == "sk-hush"
    assert catalogue.get("t").path == llama
    assert catalogue.get("embedder").capabilities == (Capability.EMBEDDINGS,)
    assert catalogue.get("embedder").keep_resident
    assert reasons(report).keys() == {
        ("/AI/guffcache/gemma-4-31B-Q4_0.gguf", "path"),
        ("Qwen/Qwen3-8B", None),
        ("Qwen/Qwen3-8B", "load_in_4bit"),
        ("off", None),
        ("tiny", "engine"),
        ("tiny", "n_gpu_layers"),
        (str(llama), None),
        ("gone", "path"),
        ("stabilityai/sdxl", None),
        ("", None),
    }
    assert "coderai models add Qwen/Qwen3-8B" in reasons(report)["Qwen/Qwen3-8B", None]
    assert "taken by the model 'tiny'" in reasons(report)[str(llama), None]
    assert "sk-hush" not in report.model_dump_json()


def far(name: str, **fields: Any) -> dict[str, Any]:
    return {"text_models": [{"name": name, "service_url": "http://x", **fields}]}


def test_models_that_are_folders(install: Install, tmp_path: Path) -> None:
    pipeline, voice = write_pipeline(tmp_path / "sd15"), write_voice(tmp_path / "ann")
    report = install.take(
        {
            "image_models": [{"path": str(pipeline)}, {"name": "far", "service_url": "http://x"}],
            "tts_models": [{"name": "ann", "path": str(voice)}],
            "video_models": [{"id": "Wan-AI/Wan2.2-T2V-A14B-Diffusers"}],
        }
    )
    assert report.added == ("sd15", "ann")
    catalogue = install.catalogue()
    assert (catalogue.get("sd15").path, catalogue.get("sd15").capabilities) == (pipeline, (Capability.IMAGES,))
    assert catalogue.get("ann").path == voice.parent
    assert "served here" in reasons(report)["far", None]
    assert "coderai models add Wan-AI/" in reasons(report)["Wan-AI/Wan2.2-T2V-A14B-Diffusers", None]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"enabled": False}, {"enabled": False}),
        ({"nodes": "", "max_parts": None}, {}),
        ({"nodes": "cuda0, gpu-box"}, {"nodes": ("cuda0", "gpu-box")}),
        ({"nodes": ["cuda0"], "max_parts": 3, "min_items": 8, "chunk_seconds": 20},
         {"nodes": ("cuda0",), "max_parts": 3, "min_items": 8, "chunk_seconds": 20.0}),
    ],
)  # fmt: skip
def test_how_requests_are_spread(
    install: Install, tmp_path: Path, given: dict[str, Any], taken: dict[str, Any]
) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    report = install.take({"gguf_models": [{"path": str(path), "distribute": given}]})
    assert report.not_taken == ()
    assert install.catalogue().get("tiny").distribute == Distribute(**taken)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (True, "distribute"),
        ({"max_parts": 0}, "distribute.max_parts"),
        ({"chunk_seconds": "hush"}, "distribute.chunk_seconds"),
        ({"weird": 1, "max_parts": 2}, "distribute.weird"),
    ],
)
def test_what_of_the_spreading_is_not_taken(install: Install, tmp_path: Path, given: object, key: str) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    report = install.take({"gguf_models": [{"path": str(path), "distribute": given}]})
    assert report.added == ("tiny",)
    assert list(reasons(report)) == [(str(path), key)]
    assert "hush" not in report.model_dump_json()


def test_doing_it_twice_adds_nothing(install: Install) -> None:
    assert install.take(far("far", alias="f")).added == ("far",)
    before = install.catalogue()
    again = install.take(far("far", alias="f"))
    assert again.added == ()
    assert "taken by the model 'far'" in reasons(again)["far", None]
    assert "coderai.toml" in reasons(install.take(far("declared")))["declared", None]
    assert [entry.name for entry in install.catalogue().entries] == [entry.name for entry in before.entries]


def test_a_dry_run_says_the_same_and_changes_nothing(install: Install) -> None:
    document = {**far("far", argv=["x"]), "vision_models": ["sd\x1bxl\n"]}
    planned = install.take(document, dry_run=True)
    assert install.catalogue().find("far") is None
    assert install.take(document) == planned
    assert planned.lines() == (
        "added: far",
        "not taken: vision_models, sd?xl?: models of this kind (vision_models) are not served by this version",
        "not taken: text_models, far, argv: it names a program or its surroundings: only the machine's own "
        "coderai.toml may",
    )


@pytest.mark.parametrize("key", ["command", "argv", "env", "venv", "node_path", "python"])
def test_what_names_a_program_is_never_taken(install: Install, key: str) -> None:
    report = install.take(far("far", **{key: ["/opt/evil", "-c"]}))
    assert report.added == ("far",)
    assert "names a program" in reasons(report)["far", key]
    assert "evil" not in str(install.catalogue().get("far"))


@pytest.mark.parametrize(
    ("given", "taken", "named"),
    [
        (["chat"], (Capability.CHAT,), False),
        (["text"], (Capability.CHAT, Capability.COMPLETIONS), False),
        ("embeddings", (Capability.EMBEDDINGS,), False),
        (["chat", "vision"], (Capability.CHAT,), True),
        (["vision"], (Capability.CHAT, Capability.COMPLETIONS), True),
        (None, (Capability.CHAT, Capability.COMPLETIONS), False),
    ],
)
def test_capabilities(install: Install, given: object, taken: tuple[Capability, ...], named: bool) -> None:
    report = install.take(far("far", capabilities=given))
    assert install.catalogue().get("far").capabilities == taken
    assert (("far", "capabilities") in reasons(report)) is named


def test_a_service_token_is_the_key(install: Install) -> None:
    install.take(far("far", service_token="cra-hush"))
    key = install.catalogue().get("far").api_key
    assert key is not None
    assert key.get_secret_value() == "cra-hush"


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "bad name", "service_url": "http://x"},
        {"name": "a", "service_url": "file:///etc/passwd"},
        {"name": "a", "service_url": 7},
        {"name": "a", "service_url": "http://x", "max_instances": "hush"},
        {"name": "a", "service_url": "http://x", "api_key": {"x": "hush"}},
        {"name": "a"},
        {"name": "a", "path": 5},
        {"name": "a", "path": "https://host/x.gguf"},
        {},
    ],
)
def test_an_entry_that_cannot_be_used_is_named(install: Install, entry: dict[str, object]) -> None:
    report = install.take({"text_models": [entry, {"name": "good", "service_url": "http://x"}]})
    assert report.added == ("good",)
    assert report.not_taken
    assert "hush" not in report.model_dump_json()


def test_over_http_a_path_lies_below_the_roots(install: Install, tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "outside.gguf")
    report = install.take({"gguf_models": [str(path)]}, trusted=False)
    assert report.added == ()
    assert "lies below one of" in reasons(report)[str(path), "path"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"7", b"\xff", b'{"text_models": {}}', b'{"text_models": [7]}', b"[" * 100_000,
        json.dumps({**far("far"), "image_models": "x"}).encode(), b" " * (17 << 20),
    ],
)  # fmt: skip
def test_a_malformed_file_changes_nothing(install: Install, content: bytes) -> None:
    before = install.catalogue()
    with pytest.raises(InvalidRequest):
        install.take(content)
    assert before.refreshed(install.settings, install.database, ()) is before
