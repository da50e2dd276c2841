"""Labels of flow runs: where the worker process keeps what its jobs have used."""

import logging
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectException

from infra.run_usage import RunUsage, usage_labels

log = logging.getLogger(__name__)


async def keep_usage(run: UUID, usage: RunUsage) -> bool:
    """Write it into the run's labels, in place of what they say of it; other labels stay. Whether that was heard: a run
    is not worth less for want of it, so that a Prefect that does not answer is told of in the log."""
    labels: dict[str, bool | int | float | str] = {**usage_labels(usage)}
    try:
        await get_client().update_flow_run_labels(run, labels)
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("what run %s has used could not be kept: %s", run, error or type(error).__name__)
        return False
    return True
