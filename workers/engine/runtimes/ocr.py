"""Text recognition with RapidOCR: PaddleOCR's networks for finding lines and for reading them, run by onnxruntime.

The package's third network, which turns lines that stand on their head, is left out: it turns many a long line that
stands upright (a fifth of the letters of a page of such lines were lost to it).
"""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt
import orjson
from rapidocr import RapidOCR
from rapidocr.utils.output import RapidOCROutput
from rapidocr.utils.process_img import ResizeImgError

from infra.errors import CoderAIError, InvalidRequest, LoadFailed
from infra.types import Json
from workers.documents.opening import open_pages
from workers.documents.types import DEFAULT_DPI, DPI_RANGE, Page, Span, sniff
from workers.engine.runtimes.ocr_layout import Line, describe_page
from workers.engine.runtimes.protocol import Ask, Handler, Reply, Upload
from workers.wire import EngineLaunch

_KINDS: Final = ("Det", "Rec")
"""What finds lines, and what reads them; in the library's own words."""
_WARM_UP: Final = (64, 320, 3)
_LEAST_SIDE: Final = 8
_LEAST_ENLARGED: Final = 320
"""Pixels of a page's shorter side that it is enlarged to before lines are looked for: the library's own 736 makes a
strip of one line the most expensive page of all, and finds no more."""


class Ocr:
    """`/ocr`: the form's files `file`, each with its pages in a field `span` ("1-3"), and `dpi`, `layout`.

    Answers `{"results": [{"pages": […]} | {"error": {…}}]}`, one for each file in their order: a file that cannot be
    read takes none of the others with it.
    """

    def __init__(self) -> None:
        self._library: RapidOCR | None = None
        self._one = threading.Lock()
        """The library keeps what belongs to one page in itself."""

    def load(self, launch: EngineLaunch) -> None:
        """See `Runtime.load`. The two networks are the folder's `*_det_*.onnx` and `*_rec_*.onnx`."""
        folder = launch.entry.path
        assert folder is not None
        params: dict[str, object] = {f"{kind}.model_path": str(_network(folder, kind)) for kind in _KINDS}
        params |= {
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "Det.limit_type": "min",
            "Det.limit_side_len": _LEAST_ENLARGED,
            "EngineConfig.onnxruntime.intra_op_num_threads": launch.threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
        cv2.setNumThreads(launch.threads)
        try:
            self._library = RapidOCR(params=params)
            self._read(np.full(_WARM_UP, 255, np.uint8))  # it loads the networks with the first page
        except Exception as error:
            raise LoadFailed(f"RapidOCR cannot use the networks in {folder} ({type(error).__name__})") from error

    def routes(self) -> Mapping[str, Handler]:
        """See `Runtime.routes`."""
        return {"/ocr": self._ocr}

    def _ocr(self, ask: Ask) -> Reply:
        spans, dpi = _spans(ask), _dpi(ask)
        layout = _last(ask, "layout", "true") == "true"
        results: list[Json] = []
        for upload, span in zip(ask.files, spans, strict=True):
            try:
                read: list[Json] = []
                for page in _pages(upload, span, dpi):
                    ask.check()
                    read.append(self._page(page, layout=layout))
                results.append({"pages": read})
            except CoderAIError as error:
                results.append({"error": {"message": error.message, "code": error.code, "kind": type(error).__name__}})
        return Reply(orjson.dumps({"results": results}))

    def _page(self, page: Page, *, layout: bool) -> dict[str, Json]:
        rgb = np.frombuffer(page.pixels, np.uint8).reshape(page.height, page.width, 3)
        try:
            lines = self._read(np.ascontiguousarray(rgb[:, :, ::-1]))
        except ResizeImgError as error:
            raise InvalidRequest(
                f"page {page.number} has {page.width} x {page.height} pixels: it is too narrow to be read",
                param="file",
                code="too_narrow",
            ) from error
        return describe_page(page.number, (page.width, page.height), lines, layout=layout)

    def _read(self, bgr: npt.NDArray[np.uint8]) -> list[Line]:
        """The lines of one page, from top to bottom, those at one height from left to right."""
        assert self._library is not None
        if min(bgr.shape[:2]) < _LEAST_SIDE:
            return []
        with self._one:
            found = self._library(bgr)
        if not isinstance(found, RapidOCROutput) or found.boxes is None or found.txts is None or found.scores is None:
            return []
        return [
            Line(str(text), float(score), tuple((round(float(x)), round(float(y))) for x, y in box))
            for box, text, score in zip(found.boxes, found.txts, found.scores, strict=True)
        ]


def _network(folder: Path, kind: str) -> Path:
    part = f"_{kind.lower()}_"
    found = sorted(each for each in folder.glob("*.onnx") if part in each.name)
    if not found:
        raise LoadFailed(f"there is no *{part}*.onnx in {folder}")
    return found[0]


def _pages(upload: Upload, span: Span, dpi: int) -> Iterator[Page]:
    kind = sniff(upload.data)
    if kind is None:
        raise InvalidRequest(f"{upload.name!r} is neither an image nor a PDF", param="file", code="unsupported_type")
    return open_pages(upload.data, kind, span, dpi)


def _spans(ask: Ask) -> list[Span]:
    """The pages of each file.

    Raises:
        InvalidRequest: not one `span` a file, or one that is none.
    """
    given = ask.body.get("span")
    texts = given if isinstance(given, list) else []
    if not ask.files or len(texts) != len(ask.files):
        raise InvalidRequest("send at least one file, and one span of pages for each", param="span")
    spans = []
    for text in texts:
        first, _, last = str(text).partition("-")
        if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
            raise InvalidRequest(f"{text!r} is no span of pages such as 1-3", param="span")
        spans.append(Span(int(first), int(last)))
    return spans


def _dpi(ask: Ask) -> int:
    text = _last(ask, "dpi", str(DEFAULT_DPI))
    if not text.isdecimal() or not DPI_RANGE[0] <= int(text) <= DPI_RANGE[1]:
        raise InvalidRequest(f"dpi is from {DPI_RANGE[0]} to {DPI_RANGE[1]}", param="dpi")
    return int(text)


def _last(ask: Ask, name: str, default: str) -> str:
    """The last value of a form's field."""
    given = ask.body.get(name)
    return str(given[-1]) if isinstance(given, list) and given else default
