"""What runs beside the server in its process: the check of Prefect's tables, then the drainer and the pruner."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import httpx
from fastapi import FastAPI
from prefect.server.database import PrefectDBInterface, provide_database_interface

from infra.blobs import Blobs
from infra.prefect_child.again import AskAgain
from infra.prefect_child.batch import NotReady
from infra.prefect_child.contract import broken
from infra.prefect_child.drain import Drainer
from infra.prefect_child.lookup import Places
from infra.prefect_child.payloads import PayloadKeeper
from infra.prefect_child.prune import Limits, Pruner
from infra.prefect_child.prune_rows import RunRows
from infra.prefect_child.route import record_router
from infra.prefect_child.spec import API_BASE, ChildOptions, basic
from infra.prefect_child.write import Recorder
from infra.recorder_status import RecorderStatus, State, StatusFile
from infra.run_files import RunFiles

log = logging.getLogger("infra.prefect_child")

_LOOK_AGAIN_S = 60.0
"""A status that is older than 90 s is taken for a recorder that hangs."""
_BUSY_S = 5.0
"""A database that was locked, or a disk that was full, is looked at sooner."""
_UNCHECKED = "Prefect's tables have not been looked at yet"


class Background:
    """Everything of ours in the child, made once."""

    def __init__(self, app: FastAPI, options: ChildOptions, auth: str) -> None:
        self._app = app
        self._auth = auth
        self._db: PrefectDBInterface = provide_database_interface()
        self._recorder = Recorder(self._db, Places(self._db), refusal=_UNCHECKED)
        rows = RunRows(self._db)
        limits = Limits(options.keep_days, options.keep_runs, options.payloads)
        self._pruner = Pruner(rows, options.home, limits)
        payloads = PayloadKeeper(options.payloads, Blobs(options.home / "payloads"), RunFiles(options.home))
        app.api_app.include_router(record_router(self._recorder.record, payloads))  # type: ignore[attr-defined]
        app.add_middleware(AskAgain)
        self._spool = options.home / "spool"
        self._status = StatusFile(options.home)
        self._drainer = Drainer(self._spool, self._recorder.record, payloads, self._status)

    async def run(self) -> None:
        """Run until cancelled. The server must be up: its tables are there then."""
        pause_s = await self._looked()
        while pause_s > 0:
            await asyncio.sleep(pause_s)
            pause_s = await self._looked()
        self._recorder.refusal = None
        await asyncio.gather(_for_ever(self._drainer.run_forever()), _for_ever(self._pruner.run_forever()))

    async def _looked(self) -> float:
        """Look at the tables; the seconds until another look, 0 if all is well."""
        try:
            reason = await self._look()
        except NotReady as error:
            self._refuse("waiting", error.message)
            return _BUSY_S
        if reason is None:
            return 0.0
        self._refuse("mismatch", reason)
        return _LOOK_AGAIN_S

    def _refuse(self, state: State, reason: str) -> None:
        if reason != self._recorder.refusal:
            log.error("runs are not recorded, and stay in the spool: %s", reason)
        self._recorder.refusal = reason
        waiting = sum(1 for _ in self._spool.glob("*.seg"))
        self._status.say(RecorderStatus(state=state, reason=reason, waiting_segments=waiting), now=True)

    async def _look(self) -> str | None:
        transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
        headers = {"Authorization": basic(self._auth)}
        async with httpx.AsyncClient(
            transport=transport, base_url=f"http://127.0.0.1{API_BASE}", headers=headers
        ) as api:
            return await broken(self._db, api)


async def _for_ever(work: Coroutine[Any, Any, None]) -> None:
    """A task that ends by itself takes the process with it, so that it is started anew with the reason in the log."""
    await work
    raise RuntimeError("a background task has ended")
