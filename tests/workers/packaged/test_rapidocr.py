"""The packaged text recognition is offered where all of it is installed."""

import os
from pathlib import Path

from workers.packaged.catalogue import find_folder, packaged_entries
from workers.packaged.rapidocr import LIBRARIES, NETWORKS, rapidocr_entries
from workers.types import Capability, ModelFormat


class Installed:
    """Packages as empty folders, the networks as files of the right size and no content."""

    def __init__(self, site: Path) -> None:
        self.packages = {name: site / name for name in LIBRARIES}
        self.models = site / "rapidocr" / "models"
        self.models.mkdir(parents=True)
        for name, size_bytes in NETWORKS.items():
            (self.models / name).touch()
            os.truncate(self.models / name, size_bytes)

    def find(self, package: str) -> Path | None:
        return self.packages.get(package)


def test_it_is_offered_from_where_it_lies(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    (entry,) = packaged_entries(tmp_path / "home", (), installed.find, only_ready=True)
    assert (entry.name, entry.aliases) == ("rapidocr-ppocrv6", ("rapidocr",))
    assert (entry.format, entry.capabilities) == (ModelFormat.RAPIDOCR, (Capability.OCR,))
    assert entry.path == installed.models
    assert entry.weights_bytes == sum(NETWORKS.values())


def test_every_library_must_be_there(tmp_path: Path) -> None:
    for library in LIBRARIES:
        installed = Installed(tmp_path / library)
        del installed.packages[library]
        assert rapidocr_entries(installed.find) == ()


def test_another_version_s_networks_are_not_taken(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    name = next(iter(NETWORKS))
    os.truncate(installed.models / name, NETWORKS[name] - 1)
    assert rapidocr_entries(installed.find) == ()
    (installed.models / name).unlink()
    assert rapidocr_entries(installed.find) == ()


def test_the_installed_package_is_the_one_that_is_meant() -> None:
    assert len(rapidocr_entries(find_folder)) == 1
