"""What was told of responses that are no more goes, and nothing else."""

import asyncio

import pytest

from api.openai.responses.sweeping import keep_sweeping, sweep
from infra.types import ResponseId
from tests.api.openai.responses.conftest import Background


async def test_what_was_told_goes_with_its_response(background: Background, caplog: pytest.LogCaptureFixture) -> None:
    kept, gone = (await background.begun()).id, (await background.begun()).id
    for response in (kept, gone):
        background.telling(response).die()
    assert sweep(background.rows, background.events) == 0
    background.rows.forget(ResponseId(gone))
    sweeping = asyncio.create_task(keep_sweeping(background.rows, background.events, every_s=0.01))
    async with asyncio.timeout(5):
        while background.events.known() != [kept]:
            await asyncio.sleep(0.01)
    with background.flows.front.services.database.connection() as connection:
        connection.exec_driver_sql("ALTER TABLE response RENAME TO hidden")
    async with asyncio.timeout(5):
        while "could not be looked through" not in caplog.text:
            await asyncio.sleep(0.01)
    assert not sweeping.done()
    sweeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweeping
    assert background.events.known() == [kept]
