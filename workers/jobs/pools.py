"""Work pools: one for the head and one a card, made and kept in step; those that an operator made are judged.

Pause and concurrency limit are the operator's and are never touched. Of a pool's description one paragraph is ours:
why no worker of this install serves it.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import WorkPool
from prefect.exceptions import ObjectAlreadyExists

from infra.prefect_shapes import WorkPoolState
from infra.types import HEAD_POOL, PoolId
from workers.jobs.worker import CardWorker, HeadWorker
from workers.pools.orders import CARD_TYPE, HEAD_TYPE

log = logging.getLogger(__name__)

_HEAD_WORDS: Final = "The install that took the request: jobs start here, and their steps go to the cards."
_REMARK = re.compile(r"\s*\*\*Not served\*\*: .*", re.DOTALL)
_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Served:
    """A pool that this install has a worker for. `device` is the card that its runs stay on, where it names one."""

    pool: PoolId
    type: str
    device: PoolId | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a pool: it is served, or it is not, for a reason."""

    served: Served | None = None
    reason: str | None = None


def judge(name: PoolId, kind: str, device: str | None, cards: Sequence[PoolId]) -> Judgement | None:
    """What becomes of a pool of this name, type and device; None if it is no affair of ours."""
    if name == HEAD_POOL and kind == HEAD_TYPE:
        return Judgement(Served(name, HEAD_TYPE))
    if name in cards and kind == CARD_TYPE:
        return Judgement(Served(name, CARD_TYPE))
    if kind == CARD_TYPE:
        if device is not None and device in cards:
            return Judgement(Served(name, CARD_TYPE, PoolId(device)))
        return Judgement(reason=_no_card(name, device, cards))
    if kind == HEAD_TYPE:
        return Judgement(reason=f"the pool of the type {HEAD_TYPE} is called {HEAD_POOL}, and there is one")
    if name == HEAD_POOL or name in cards:
        wanted = HEAD_TYPE if name == HEAD_POOL else CARD_TYPE
        return Judgement(reason=f"its name is needed for a pool of the type {wanted}, not {kind}: delete it")
    return None


def described(description: str | None, reason: str | None) -> str:
    """The description with our remark, if there is a reason for one; with none of an earlier time."""
    plain = _REMARK.sub("", description or "")
    return f"{plain}\n\n**Not served**: {reason}".strip() if reason else plain


def card_template(device: PoolId) -> dict[str, Any]:
    """The base job template of a card's pool."""
    template = CardWorker.get_default_base_job_template()
    template["variables"]["properties"]["device"]["default"] = device
    return template


async def keep_in_step(client: PrefectClient, cards: Sequence[PoolId]) -> list[Served]:
    """Make the pools that are missing, and mark those that nobody serves; returns those that want a worker.

    Raises:
        httpx.HTTPError: Prefect does not answer.
    """
    found = {pool.name: pool for pool in await _all(client)}
    for name in (HEAD_POOL, *cards):
        if name not in found:
            found[name] = await _make(client, name)
    served: list[Served] = []
    for pool in found.values():
        judgement = judge(PoolId(pool.name), pool.type, _device(pool), cards)
        if judgement is None:
            continue
        await _mark(client, pool, judgement)
        if judgement.served is not None:
            served.append(judgement.served)
    return served


async def _all(client: PrefectClient) -> list[WorkPool]:
    found: list[WorkPool] = []
    while len(page := await client.read_work_pools(limit=_PAGE, offset=len(found))) == _PAGE:
        found += page
    return found + page


async def _make(client: PrefectClient, name: PoolId) -> WorkPool:
    head = name == HEAD_POOL
    wanted = WorkPoolCreate(
        name=name,
        type=HEAD_TYPE if head else CARD_TYPE,
        description=_HEAD_WORDS if head else f"The card `{name}` of this machine.",
        base_job_template=HeadWorker.get_default_base_job_template() if head else card_template(name),
    )
    try:
        return await client.create_work_pool(wanted)
    except ObjectAlreadyExists:
        return await client.read_work_pool(name)


async def _mark(client: PrefectClient, pool: WorkPool, judgement: Judgement) -> None:
    """Put the description right, and the device of a card's own pool."""
    changes: dict[str, Any] = {}
    wanted = described(pool.description, judgement.reason)
    if wanted != (pool.description or ""):
        changes["description"] = wanted
        if judgement.reason:
            log.warning("work pool %s is not served: %s", pool.name, judgement.reason)
        else:
            log.info("work pool %s is served again", pool.name)
    served = judgement.served
    if served is not None and served.type == CARD_TYPE and served.device is None and _device(pool) != served.pool:
        changes["base_job_template"] = card_template(served.pool)
    if changes:
        await client.update_work_pool(pool.name, WorkPoolUpdate(**changes))


def _device(pool: WorkPool) -> str | None:
    shape = WorkPoolState(name=PoolId(pool.name), type=pool.type, base_job_template=pool.base_job_template)
    return shape.device


def _no_card(name: PoolId, device: str | None, cards: Sequence[PoolId]) -> str:
    there = ", ".join(cards) or "none"
    if device == name:
        return f"the card {name} is not in this machine now; there are: {there}"
    if device is None:
        return f"it names no device: set its base job template's variable `device` to one of {there}"
    return f"it names the device {device}, which this machine does not have; there are: {there}"
