"""Models that come inside Python packages, served without any hub."""

from workers.packaged.catalogue import PACKAGED, PackagedModel, is_ready, packaged_entries, served_path
from workers.packaged.files import Progress, Report
from workers.packaged.ready import Prepared, prepare, prepare_one

__all__ = [
    "PACKAGED",
    "PackagedModel",
    "Prepared",
    "Progress",
    "Report",
    "is_ready",
    "packaged_entries",
    "prepare",
    "prepare_one",
    "served_path",
]
