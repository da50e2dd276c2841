"""`GET /v1/images/progress`, `/v1/video/progress`, `/v1/audio/progress`: how far the generations under way are."""

from typing import Final

from fastapi import APIRouter
from pydantic import Field

from api.cold import ServicesDep, UserKey
from api.progress import UnderWay
from api.services import Services
from flows.progress import RunProgress
from infra.tokens import Key
from infra.types import Frozen, RunId
from workers.types import Capability

router = APIRouter(prefix="/v1", tags=["progress"])

_IMAGES: Final = frozenset({Capability.IMAGES})
_VIDEO: Final = frozenset({Capability.VIDEO})
_AUDIO: Final = frozenset({Capability.TTS, Capability.STT})
IDLE: Final = "idle"


class GenerationProgress(RunProgress):
    """One generation under way."""

    run: RunId
    model: str


class Progress(Frozen):
    """The latest generation under way, and under `runs` every one of them, oldest first.

    `current` of `total` steps of the model are done, over all that was asked for: of four images with 20 steps each,
    80 is the total; it is 0 until it is known. `elapsed` is in seconds.
    """

    active: bool
    phase: str = Field(IDLE, description=f"What is done now, such as `denoising`; `{IDLE}` while nothing is.")
    model: str | None = None
    current: int = 0
    total: int = 0
    pct: float = 0.0
    it_per_s: float = 0.0
    elapsed: float = 0.0
    runs: tuple[GenerationProgress, ...] = ()


@router.get("/images/progress", summary="How far images are")
async def images(services: ServicesDep, key: UserKey) -> Progress:
    """The key's own image generations; an admin key sees all."""
    return await _told(services, key, _IMAGES)


@router.get("/video/progress", summary="How far videos are")
async def video(services: ServicesDep, key: UserKey) -> Progress:
    """The key's own video generations; an admin key sees all."""
    return await _told(services, key, _VIDEO)


@router.get("/audio/progress", summary="How far speech and transcriptions are")
async def audio(services: ServicesDep, key: UserKey) -> Progress:
    """The key's own speech and transcriptions; an admin key sees all."""
    return await _told(services, key, _AUDIO)


async def _told(services: Services, key: Key, kinds: frozenset[Capability]) -> Progress:
    found = await services.progress.of_kind(key, kinds, services.shelf.catalogue)
    runs = tuple(_shown(run, progress) for run, progress in found)
    if not runs:
        return Progress(active=False)
    return Progress(active=True, runs=runs, **runs[-1].model_dump(exclude={"run", "steps"}))


def _shown(run: UnderWay, progress: RunProgress) -> GenerationProgress:
    return GenerationProgress(run=run.run, model=run.model, **progress.model_dump())
