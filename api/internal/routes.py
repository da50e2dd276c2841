"""What the worker process asks now and then: a job's plan, which cards there are, the end of a run of this front."""

import re
from collections.abc import Awaitable, Callable
from functools import partial

import orjson
from pydantic import ValidationError

from api.openai.resources import RESOURCES
from api.services import Services
from flows.distribute import Cut
from infra.error_object import error_object
from infra.errors import InvalidRequest
from infra.tokens import Key
from infra.types import Frozen, Json, KeyName, RunId
from workers.refused import refusal

Answer = Callable[[bytes], Awaitable[bytes]]
"""From a request's body to the answer's."""
_CANCEL = re.compile(r"/internal/runs/([^/]+)/cancel")


class PlanAsk(Frozen):
    """A job that is to be planned: its flow, the request as its endpoint would take it, and whose it is.

    `sizes` are those of its parts at an earlier try whose results are kept, none if it was not split then.
    """

    flow: str
    request: dict[str, Json]
    key: KeyName
    sizes: tuple[int, ...] | None = None


class Routes:
    """The plain routes by method and path."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def find(self, method: str, path: str) -> Answer | None:
        """Who answers there; None if nobody does."""
        if (method, path) == ("POST", "/internal/plan"):
            return self._plan
        if (method, path) == ("GET", "/internal/pools"):
            return self._pools
        cancelled = _CANCEL.fullmatch(path)
        if method == "POST" and cancelled is not None:
            return partial(self._cancel, RunId(cancelled[1]))
        return None

    async def _cancel(self, run: RunId, _body: bytes) -> bytes:
        """The end of a run of this front."""
        return orjson.dumps({"cancelled": self._services.active.cancel(run)})

    async def _plan(self, body: bytes) -> bytes:
        """The job's plan, as JSON. Its answer is fetched when it is whole, so that nothing is streamed."""
        try:
            ask = PlanAsk.model_validate_json(body)
        except ValidationError as error:
            raise InvalidRequest(f"this is no job: {error.errors()[0]['msg']}") from error
        resource = RESOURCES.get(ask.flow)
        if resource is None:
            raise InvalidRequest(f"there is no flow {ask.flow!r}; there are {', '.join(RESOURCES)}", param="flow")
        request = resource.as_job(ask.request)
        entry = self._services.shelf.catalogue.get(str(request.get("model", "")))
        affine = self._services.fleet.has_choice(entry)
        request = await resource.recalled(self._services, Key(ask.key, "user"), request, entry)
        cut = None if ask.sizes == () else Cut(self._services.sites, ask.sizes or ())
        plan, _stream = resource.planned(request, entry, None, affine=affine, cut=cut)
        self._services.accounting.count_job(ask.key, entry.name, ask.flow)
        return plan.to_json()

    async def _pools(self, _body: bytes) -> bytes:
        """The cards: each is to have a work pool of its name."""
        cards = [
            {"pool": pool.pool, "backend": pool.backend, "unusable": pool.unusable}
            for pool in self._services.fleet.pools()
        ]
        return orjson.dumps({"pools": cards})


def failure(error: BaseException) -> bytes:
    """OpenAI's error object, and beside it what the worker process makes the same error of."""
    return orjson.dumps({"error": error_object(error), "refused": refusal(error).model_dump()})
