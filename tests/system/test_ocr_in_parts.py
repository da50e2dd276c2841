"""Documents over two engines that read: the same answers in the same order, whatever happens to an engine."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import rapidocr

from tests.documents import drawn, empty_pdf, encoded, pdf
from tests.system.conftest import end
from tests.system.engines import busy, engines_of, pids_of, two_cards
from tests.system.product import Product, eventually

MODEL = (
    '[[model]]\nname = "{name}"\npath = "{path}"\nformat = "rapidocr"\ncapabilities = ["ocr"]\n'
    "weights_bytes = 31000000\nmax_instances = 1\n"
)
LINES = [f"Ledger page {number} has {number * 317}." for number in range(1, 7)]
IMAGES = [(f"{number}.png", encoded(drawn((line,), width=500))) for number, line in enumerate(LINES, 1)]
PAGES = [("ledger.pdf", pdf([drawn((line,), width=500) for line in LINES]))]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Two cards by hand, each with an engine. `spread` is on both, `single` on one."""
    settings = {"MODELS__PACKAGED": "false", "LLAMA__THREADS": "1"}
    served = Product(tmp_path_factory.mktemp("ocr") / "home", config="# none yet", settings=settings)
    path = Path(str(rapidocr.__file__)).parent / "models"
    rows = MODEL.format(name="spread", path=path) + "distribute = { min_items = 2 }\n"
    rows += MODEL.format(name="single", path=path) + "distribute = { enabled = false }\n"
    try:
        two_cards(served, rows)
        read(served, "spread", [("empty.pdf", empty_pdf(40))])  # so many pages that it is loaded on both
        assert set(pids_of(served, "spread")) == {"cpu-a", "cpu-b"}, served.log
        yield served
    finally:
        end(served)


def read(served: Product, model: str, files: list[tuple[str, bytes]]) -> Any:
    batch = len(files) > 1
    parts = [("files" if batch else "file", file) for file in files]
    path = "/v1/ocr/batch" if batch else "/v1/ocr"
    fields = {"model": model, "dpi": "100"}
    answer = httpx2.post(f"{served.url}{path}", files=parts, data=fields, headers=served.headers(), timeout=100)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("files", [IMAGES, PAGES], ids=["a batch", "the pages of a PDF"])
def test_it_is_read_as_by_one_engine(two: Product, files: list[tuple[str, bytes]]) -> None:
    spread = read(two, "spread", files)
    assert spread == read(two, "single", files)
    pages = [page for result in spread.get("results", [spread]) for page in result["pages"]]
    assert [page["text"] for page in pages] == LINES


def test_the_plan_of_files(two: Product, tmp_path: Path) -> None:
    file = tmp_path / "ledger.pdf"
    file.write_bytes(PAGES[0][1])
    request = f'{{"model": "spread", "file": "{file}"}}'
    told = two.told("plan", "--endpoint", "ocr", "--request", "-", stdin=request)
    for word in ('"split"', '"part-1"', '"part-2"', '"merge"', "this part is for cpu-a", "this part is for cpu-b"):
        assert word in told, told


def test_an_engine_killed_in_the_middle(two: Product) -> None:
    undisturbed = read(two, "spread", IMAGES)
    got: list[Any] = []
    pids = pids_of(two, "spread")
    asking = threading.Thread(target=lambda: got.append(read(two, "spread", IMAGES)))
    asking.start()
    eventually(
        lambda: busy(two, "spread") == {"cpu-a", "cpu-b"},
        30,
        what=lambda: f"{engines_of(two, 'spread')}\n{two.log}",
        pause_s=0.005,
    )
    os.kill(pids["cpu-b"], signal.SIGKILL)
    asking.join(100)
    assert got == [undisturbed]
    eventually(lambda: set(pids_of(two, "spread")) == {"cpu-a", "cpu-b"}, 60, what=lambda: two.log)
