"""What runs beside the requests comes back, whatever happens to it, until the front closes."""

import asyncio

import pytest

from api.watchers import keep_alive


async def test_a_watcher_that_fails_is_told_of_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    starts = 0
    third = asyncio.Event()

    async def watch() -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise ZeroDivisionError("what went wrong")
        if starts == 3:
            third.set()
            await asyncio.sleep(30)

    watching = asyncio.create_task(keep_alive("the watch", watch, again_s=0.01))
    async with asyncio.timeout(5):
        await third.wait()
    failed, ended = caplog.records
    assert (failed.levelname, failed.getMessage()) == ("ERROR", "the watch failed; it is started again")
    assert "what went wrong" in caplog.text
    assert (ended.levelname, ended.getMessage()) == ("ERROR", "the watch ended; it is started again")
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_it_waits_before_it_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    async def watch() -> None:
        raise OSError

    watching = asyncio.create_task(keep_alive("the watch", watch))
    await asyncio.sleep(0.1)
    assert len(caplog.records) == 1
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert watching.cancelled()


async def test_a_front_that_closes_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    async def watch() -> None:
        await asyncio.sleep(30)

    watching = asyncio.create_task(keep_alive("the watch", watch))
    await asyncio.sleep(0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert watching.cancelled()
    assert not caplog.records
