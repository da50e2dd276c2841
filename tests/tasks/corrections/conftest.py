"""Engines that the tests of this folder share."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.tasks.corrections.live import Live, running
from tests.tiny_gguf import write_tiny_embedder, write_tiny_llama
from workers.packaged import prepare_one
from workers.packaged.catalogue import model_named
from workers.types import Capability, Pooling

TEXT = (Capability.CHAT, Capability.COMPLETIONS)


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A chat model with random weights, whose template knows no tools."""
    with running(write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf"), TEXT) as live:
        yield live


@pytest.fixture(scope="package")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """An embedding model with random weights."""
    path = write_tiny_embedder(tmp_path_factory.mktemp("embedder") / "embedder.gguf")
    with running(path, (Capability.EMBEDDINGS,), Pooling.MEAN) as live:
        yield live


@pytest.fixture(scope="package")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Qwen2.5-Coder-0.5B, whose template knows tools; its packages must be installed."""
    path = asyncio.run(prepare_one(model_named("qwen2.5-coder"), tmp_path_factory.mktemp("qwen")))
    with running(path, TEXT) as live:
        yield live
