"""A front beside a fake of Prefect's API, with runs of two keys."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from infra.prefect_api import PrefectApi
from tests.api.conftest import Front, StartFront
from tests.fakes_prefect_api import FakePrefect

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


@dataclass
class Flows:
    """Both of them."""

    front: Front
    prefect: FakePrefect

    def use(self, api: PrefectApi | None) -> None:
        """Make the front ask this one (None: flow runs are switched off)."""
        object.__setattr__(self.front.services, "prefect_api", api)


@contextlib.asynccontextmanager
async def beside_prefect(start_front: StartFront, **sections: Any) -> AsyncIterator[Flows]:
    """Start both."""
    front = await start_front(**sections)
    async with FakePrefect() as prefect, PrefectApi(prefect.address) as api:
        flows = Flows(front, prefect)
        flows.use(api)
        yield flows
