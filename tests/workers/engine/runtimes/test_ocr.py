"""The real networks in this process: what they read, and what a file that cannot be read does to its neighbours."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from infra.errors import InvalidRequest, LoadFailed
from infra.types import EngineId, Json, PoolId
from tests.documents import SENTENCES, distance, drawn, encoded, pdf
from workers.engine.runtimes.ocr import Ocr
from workers.engine.runtimes.protocol import Abandoned, Ask, Upload
from workers.packaged.catalogue import find_folder
from workers.packaged.rapidocr import rapidocr_entries
from workers.wire import EngineLaunch

pytestmark = pytest.mark.slow
PNG = encoded(drawn(("Hello there.",), width=300))
PDF = pdf([drawn((f"Page {word}.",), width=300) for word in ("one", "two")])


def launch(folder: Path | None = None) -> EngineLaunch:
    (entry,) = rapidocr_entries(find_folder)
    return EngineLaunch(
        engine=EngineId("cpu/reader"),
        entry=entry if folder is None else entry.model_copy(update={"path": folder}),
        pool=PoolId("cpu"),
        backend="cpu",
        slots=1,
        context_tokens=256,
        threads=1,
        cache_ram_mib=0,
    )


@pytest.fixture(scope="module")
def runtime() -> Ocr:
    made = Ocr()
    made.load(launch())
    return made


def ask(*files: bytes, **fields: list[Json]) -> Ask:
    uploads = tuple(Upload("file", f"{index}.bin", "", data) for index, data in enumerate(files))
    return Ask({"span": ["1-9"] * len(files), "dpi": ["100"], **fields}, uploads)


def read(runtime: Ocr, asked: Ask) -> list[Any]:
    body = runtime.routes()["/ocr"](asked).body
    assert isinstance(body, bytes)
    results: list[Any] = orjson.loads(body)["results"]
    return results


def test_files_are_read_in_order_and_errors_stay_with_theirs(runtime: Ocr) -> None:
    png, text, document = read(runtime, ask(PNG, b"hello", PDF))
    assert [page["text"] for page in png["pages"]] == ["Hello there."]
    assert (text["error"]["code"], text["error"]["kind"]) == ("unsupported_type", "InvalidRequest")
    assert [(page["page"], page["text"]) for page in document["pages"]] == [(1, "Page one."), (2, "Page two.")]


def test_long_lines_are_read_as_well_as_short_ones(runtime: Ocr) -> None:
    lines = [f"{one} {other}" for one in SENTENCES[:2] for other in SENTENCES]
    (result,) = read(runtime, ask(encoded(drawn(lines, size=24, width=1500))))
    wanted = "\n".join(lines)
    assert distance(result["pages"][0]["text"], wanted) <= 0.02 * len(wanted)


def test_a_span_and_no_layout(runtime: Ocr) -> None:
    (document,) = read(runtime, ask(PDF, span=["2-2"], layout=["false"]))
    assert [(page["page"], page["regions"]) for page in document["pages"]] == [(2, [])]


def test_an_empty_page_has_no_lines(runtime: Ocr) -> None:
    (blank,) = read(runtime, ask(encoded(drawn((), width=200))))
    assert [(page["text"], page["lines"]) for page in blank["pages"]] == [("", [])]


@pytest.mark.parametrize(
    "fields", [{"span": []}, {"span": ["1"]}, {"span": ["2-1"]}, {"span": ["0-1"]}, {"dpi": ["9"]}, {"dpi": ["x"]}]
)
def test_a_wrong_field_is_named(runtime: Ocr, fields: dict[str, list[Json]]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(runtime, ask(PNG, **fields))
    assert raised.value.param in fields


def test_nobody_reads_for_a_client_that_has_left(runtime: Ocr) -> None:
    asked = ask(PNG)
    asked.gone.set()
    with pytest.raises(Abandoned):
        read(runtime, asked)


def test_a_folder_without_networks_is_said(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="_det_"):
        Ocr().load(launch(tmp_path))
    for part in ("det", "rec"):
        (tmp_path / f"x_{part}_y.onnx").write_bytes(b"junk")
    with pytest.raises(LoadFailed, match="cannot use"):
        Ocr().load(launch(tmp_path))
