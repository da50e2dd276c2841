"""The text recognition that comes inside a Python package: RapidOCR, with PaddleOCR's PP-OCRv6 networks in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from infra.types import ModelName
from workers.types import Capability, ModelEntry, ModelFormat

NETWORKS: Final = {
    "PP-OCRv6_det_small.onnx": 9929594,
    "PP-OCRv6_rec_small.onnx": 21234383,
}
"""Which files must be there, of how many bytes: whole, and of the version that this one was made for."""
LIBRARIES: Final = ("rapidocr", "onnxruntime", "cv2", "pypdfium2", "PIL")
"""Packages that its engine process imports."""
WAITING: Final = 1000
"""Documents are cut into parts, each of which waits by itself."""

Find = Callable[[str], Path | None]
"""Finds an installed package's folder by its import name, without importing it."""


def rapidocr_entries(find: Find) -> tuple[ModelEntry, ...]:
    """The entry, where everything that it needs is installed. Reads no weights; there is nothing to prepare."""
    folders = [find(library) for library in LIBRARIES]
    if folders[0] is None or None in folders:
        return ()
    folder = folders[0] / "models"
    if any(_size(folder / name) != size_bytes for name, size_bytes in NETWORKS.items()):
        return ()
    return (
        ModelEntry(
            name=ModelName("rapidocr-ppocrv6"),
            aliases=(ModelName("rapidocr"),),
            format=ModelFormat.RAPIDOCR,
            capabilities=(Capability.OCR,),
            source="package",
            path=folder,
            weights_bytes=sum(NETWORKS.values()),
            architecture="pp-ocrv6",
            max_instances=1,
            queue_max_waiting=WAITING,
        ),
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
