"""Adapters of a step as files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.blobs import Blobs
from infra.errors import PayloadGone
from infra.types import Json
from tasks.loras import located
from tasks.types import TaskCall
from workers.transport import Transport


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    opened = Transport()
    yield opened
    await opened.close()


async def test_each_is_found_in_whatever_store_has_it(tmp_path: Path, transport: Transport) -> None:
    stores = (Blobs(tmp_path / "a"), Blobs(tmp_path / "b"))
    one, two = stores[1].put(b"one"), stores[0].put(b"two")
    loras: list[Json] = [
        {"blob": one, "weight": 0.5, "name": "one"},
        {"blob": two, "weight": -1, "name": "two"},
    ]
    call = TaskCall({}, transport, stores=stores)
    assert await located(call, loras) == [
        {"path": str(stores[1].find(one)), "weight": 0.5, "name": "one"},
        {"path": str(stores[0].find(two)), "weight": -1, "name": "two"},
    ]
    assert await located(call, []) == []


async def test_one_that_is_gone_is_said(tmp_path: Path, transport: Transport) -> None:
    call = TaskCall({}, transport, stores=(Blobs(tmp_path),))
    for ref in ("sha256:" + "0" * 64, "sha256:../../etc/passwd", "name:x"):
        with pytest.raises(PayloadGone, match="send the request anew"):
            await located(call, [{"blob": ref, "weight": 1, "name": "x"}])
