"""Recordings are measured where several engines could hear them, and nowhere else."""

from typing import Any

import pytest

from api.media.length import Lengths
from tests.api.conftest import Front, StartFront
from tests.sounds import encoded

pytestmark = pytest.mark.enable_socket
CARDS = {"engine_specs": [{"name": name, "backend": "cpu", "memory_mib": 4096} for name in ("cpu-a", "cpu-b")]}
ROW = {"path": "/weights/ears", "format": "whisper", "capabilities": ["stt"], "weights_bytes": 1000}
SOUND = encoded("-f", "mp3", seconds=20.0)


def kept(front: Front) -> dict[str, Any]:
    return {"blob": front.services.kept.blobs[0].put(SOUND), "bytes": len(SOUND)}


async def test_only_what_may_be_spread_is_measured(start_front: StartFront) -> None:
    models = [
        {"name": "ears", **ROW},
        {"name": "alone", **ROW, "distribute": {"enabled": False}},
        {"name": "far", "service_url": "http://127.0.0.1:9", "capabilities": ["stt"]},
        {"name": "reader", **ROW, "capabilities": ["ocr"]},
    ]
    front = await start_front(models, cards=CARDS)
    lengths, file = Lengths(front.services), kept(front)
    assert await lengths.of(file, "ears", job=False) == pytest.approx(20.0, abs=0.1)
    assert await lengths.of({**file, "bytes": 1000}, "ears", job=False) is None
    for model in ("alone", "far", "reader", "nobody", "", None):
        assert await lengths.of(file, model, job=True) is None


async def test_a_job_s_engines_are_looked_for_later(start_front: StartFront) -> None:
    front = await start_front([{"name": "ears", **ROW}])
    file = kept(front)
    assert await Lengths(front.services).of(file, "ears", job=False) is None
    assert await Lengths(front.services).of(file, "ears", job=True) == pytest.approx(20.0, abs=0.1)
