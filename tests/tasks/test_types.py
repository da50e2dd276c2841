"""What a task is called with."""

from pathlib import Path

import pytest

from infra.blobs import Blobs
from infra.errors import PayloadGone
from tasks.types import TaskCall
from workers.transport import Transport


async def test_what_a_step_has_made_is_found_by_a_later_one(tmp_path: Path) -> None:
    transport = Transport()
    try:
        outputs = Blobs(tmp_path / "made")
        first = TaskCall({}, transport, outputs=outputs)
        ref = await first.keep(b"pixels")
        elsewhere = TaskCall({}, transport, stores=(Blobs(tmp_path / "empty"), outputs))
        assert await elsewhere.fetch(ref) == b"pixels"
        outputs.prune(-1)
        with pytest.raises(PayloadGone, match="send the request anew"):
            await first.fetch(ref)
    finally:
        await transport.close()
