"""Hostile input to every operation of this server's own OpenAPI document, by schemathesis.

What is tried is the same on every run. The engines are real; their models are tiny.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.system.conftest import end
from tests.system.far import Far
from tests.system.product import Product
from tests.tiny_gguf import write_tiny_embedder, write_tiny_llama, write_tiny_reranker

BOUNDS = {"coverage": ("--max-time", "60"), "fuzzing": ("--max-examples", "12")}
"""`coverage` goes systematically through what the document allows and what it does not, as far as it comes in these
seconds; `fuzzing` sends so many random requests to each operation."""
CHECKS = "error_in_openai_s_shape,status_code_conformance,content_type_conformance,response_schema_conformance"
MODELS = {"ChatBody": ("tiny", "far"), "EmbeddingsBody": ("embedder",), "RerankBody": ("reranker", "embedder")}
"""Who can do what is asked."""
_MODEL = '[[model]]\nname = "{name}"\npath = "{path}"\nsampling = {{ max_tokens = 4 }}\n'


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory, far: Far) -> Iterator[Product]:
    """An install with a tiny model of each kind, and a far one."""
    folder = tmp_path_factory.mktemp("schema")
    models = folder / "home" / "models"
    models.mkdir(mode=0o700, parents=True)
    made = {"tiny": write_tiny_llama, "embedder": write_tiny_embedder, "reranker": write_tiny_reranker}
    rows = [_MODEL.format(name=name, path=write(models / f"{name}.gguf")) for name, write in made.items()]
    served = Product(folder / "home", config="".join([*rows, far.model]))
    try:
        served.start()
        yield served
    finally:
        end(served)


def made(product: Product) -> dict[str, str]:
    """Things that exist, by the names of the path parameters that ask for them."""
    response = product.post("/v1/responses", {"model": "tiny", "input": "hello", "max_output_tokens": 1})
    upload = {"bytes": 3, "filename": "a", "mime_type": "text/plain", "purpose": "user_data"}
    file = httpx2.post(
        f"{product.url}/v1/files",
        data={"purpose": "batch"},
        files={"file": ("a.jsonl", b"{}")},
        headers=product.headers(),
        timeout=10,
    )
    return {
        "name": "tiny",
        "response_id": response.json()["id"],
        "run": response.headers["x-coderai-run"],
        "file": file.json()["id"],
        "upload": product.post("/v1/uploads", upload).json()["id"],
    }


def pointed(document: Any, things: dict[str, str]) -> Any:
    """The document with the names of what exists beside those that nobody has: a random one ends at 404."""
    for title, shape in document["components"]["schemas"].items():
        named = shape.get("properties", {})
        if title.endswith("Body") and "model" in named:
            named["model"] = {"type": "string", "enum": [*MODELS.get(title, ("tiny",)), "nobody"]}
    _shorten(document, "/v1/responses/input_tokens")
    _shorten(document, "/v1/responses/compact")
    for item in document["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in things:
                    parameter["schema"] = {"anyOf": [{"enum": [things[parameter["name"]]]}, {"type": "string"}]}
                if parameter["name"] == "X-Coderai-Lane":  # nobody does jobs here
                    parameter["schema"] = {"enum": ["interactive"]}
    return document


def _shorten(document: Any, path: str) -> None:
    """It takes what a response takes: to go through all of that again would take the time of others."""
    properties = {name: {"type": "string"} for name in ("model", "input", "previous_response_id")}
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    body["schema"] = {"type": "object", "properties": properties, "required": ["model"]}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("phase", BOUNDS)
def test_hostile_input_is_answered_in_openai_s_words(product: Product, tmp_path: Path, phase: str) -> None:
    schema = tmp_path / "openapi.json"
    schema.write_text(json.dumps(pointed(product.get("/openapi.json"), made(product))))
    argv = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(schema), "--url", product.url),
        *("--header", f"Authorization: Bearer {product.key}", "--request-timeout", "30"),
        *("--phases", phase, *BOUNDS[phase], "--generation-deterministic", "--no-shrink", "--continue-on-failure"),
        *("--checks", CHECKS, "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
    ]
    environment = product.environment | {"SCHEMATHESIS_HOOKS": "schema_hooks", "PYTHONPATH": str(Path(__file__).parent)}
    ran = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-8000:]
    assert product.healthy()
    assert "Traceback" not in product.log
    assert "lost its process" not in product.log, "an engine has died"
