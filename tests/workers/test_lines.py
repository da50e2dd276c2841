"""A model's waiting line: who comes first, who leaves, and slots that are never lost."""

import asyncio

import pytest

from infra.errors import QueueFull
from infra.types import EngineId, PoolId
from tests.fakes import make_entry
from workers.lines import OVERTAKEN, SlotLine
from workers.live import Engine

ENTRY = make_entry(max_instances=2, queue_max_waiting=3)
Waiting = asyncio.Task[Engine | None]


def engine() -> Engine:
    """One with a slot taken, for whoever gets it."""
    return Engine(EngineId("cpu/m"), ENTRY, PoolId("cpu"), True, 1, state="ready", in_flight=1)


async def joined(line: SlotLine, count: int) -> list[Waiting]:
    tasks = [asyncio.create_task(line.wait(ENTRY, 30)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_first_come_first_served() -> None:
    line = SlotLine()
    first, second = await joined(line, 2)
    assert len(line) == 2
    one, two = engine(), engine()
    assert line.hand_over(one)
    assert line.hand_over(two)
    assert (await first, await second) == (one, two)
    assert len(line) == 0


async def test_a_heap_of_jobs_delays_no_client() -> None:
    line = SlotLine()
    jobs = [asyncio.create_task(line.wait(ENTRY, 30, patient=True)) for _ in range(5)]
    await asyncio.sleep(0)
    (client,) = await joined(line, 1)
    assert line.hand_over(engine())
    await client
    assert not any(job.done() for job in jobs)
    line.look_again()
    await asyncio.gather(*jobs)


async def test_nor_do_clients_delay_a_job_for_ever() -> None:
    line, entry = SlotLine(), make_entry(queue_max_waiting=200)
    job = asyncio.create_task(line.wait(entry, 30, patient=True))
    await asyncio.sleep(0)
    clients = [asyncio.create_task(line.wait(entry, 30)) for _ in range(OVERTAKEN + 10)]
    await asyncio.sleep(0)
    for _ in range(OVERTAKEN + 1):
        assert line.hand_over(engine())
    assert await job
    line.look_again()
    await asyncio.gather(*clients)


async def test_jobs_take_no_place_in_the_line_from_clients() -> None:
    line = SlotLine()
    jobs = [asyncio.create_task(line.wait(ENTRY, 30, patient=True)) for _ in range(5)]
    await asyncio.sleep(0)
    clients = await joined(line, ENTRY.queue_max_waiting)
    with pytest.raises(QueueFull):
        await line.wait(ENTRY, 30)
    line.look_again()
    await asyncio.gather(*jobs, *clients)


async def test_an_empty_line_takes_nothing() -> None:
    assert not SlotLine().hand_over(engine())


async def test_a_full_line_turns_away_at_once_and_says_when_to_come_back() -> None:
    line = SlotLine()
    waiting = await joined(line, ENTRY.queue_max_waiting)
    with pytest.raises(QueueFull, match="has its 3 waiting requests already") as caught:
        await line.wait(ENTRY, 30)
    assert caught.value.retry_after_s == pytest.approx(1.0 * (1 + 3) / 2)
    assert len(line) == 3
    line.look_again()
    assert await asyncio.gather(*waiting) == [None] * 3


async def test_no_line_at_all() -> None:
    with pytest.raises(QueueFull):
        await SlotLine().wait(make_entry(queue_max_waiting=0), 30)


async def test_nothing_came_free_in_time() -> None:
    line = SlotLine()
    with pytest.raises(QueueFull, match="no free slot in time") as caught:
        await line.wait(ENTRY, 0.01)
    assert caught.value.retry_after_s
    assert len(line) == 0


async def test_who_leaves_keeps_no_place() -> None:
    line = SlotLine()
    first, second, third = await joined(line, 3)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert second.cancelled()
    assert len(line) == 2
    one, two = engine(), engine()
    line.hand_over(one)
    line.hand_over(two)
    assert (await first, await third) == (one, two)


async def test_a_slot_for_who_leaves_in_the_same_moment_goes_to_the_next() -> None:
    line = SlotLine()
    first, second = await joined(line, 2)
    given = engine()
    assert line.hand_over(given)  # the first is to have it
    first.cancel()  # and leaves before it has run
    assert await second is given
    assert first.cancelled()
    assert given.in_flight == 1


async def test_a_slot_for_who_leaves_in_the_same_moment_is_free_if_nobody_waits() -> None:
    line = SlotLine()
    (only,) = await joined(line, 1)
    given = engine()
    assert line.hand_over(given)
    only.cancel()
    await asyncio.gather(only, return_exceptions=True)
    assert only.cancelled()
    assert given.in_flight == 0
    assert len(line) == 0


async def test_a_slot_for_who_has_left_already_goes_to_the_next() -> None:
    line = SlotLine()
    first, second = await joined(line, 2)
    first.cancel()  # its future is cancelled at once, its place is left when it runs
    given = engine()
    assert line.hand_over(given)
    assert await second is given
    assert given.in_flight == 1


async def test_a_slot_that_comes_with_the_end_of_the_time_is_not_lost() -> None:
    """The deadline cancels the wait in the moment of the hand-over: the slot is free again, or the waiter's."""
    line = SlotLine()
    given = engine()

    async def block_past_the_deadline() -> None:
        await asyncio.sleep(0)
        end_s = asyncio.get_running_loop().time() + 0.03
        while asyncio.get_running_loop().time() < end_s:
            pass
        line.hand_over(given)

    waited, _ = await asyncio.gather(line.wait(ENTRY, 0.01), block_past_the_deadline(), return_exceptions=True)
    if isinstance(waited, QueueFull):
        assert given.in_flight == 0
    else:
        assert waited is given
        assert given.in_flight == 1
    assert len(line) == 0


async def test_a_slot_that_is_lost_before_its_taker_wakes_is_none() -> None:
    """The process has died: its counter is not the taker's any more."""
    line = SlotLine()
    (only,) = await joined(line, 1)
    given = engine()
    line.hand_over(given)
    given.epoch, given.in_flight = given.epoch + 1, 0
    assert await only is None
    assert given.in_flight == 0


async def test_a_slot_of_an_engine_that_went_down_meanwhile_is_given_back() -> None:
    line = SlotLine()
    (only,) = await joined(line, 1)
    given = engine()
    line.hand_over(given)
    given.state = "down"
    assert await only is None
    assert given.in_flight == 0


@pytest.mark.parametrize("lost", [True, False])
async def test_who_leaves_with_a_slot_of_an_engine_that_went_down_hands_it_to_nobody(lost: bool) -> None:
    line = SlotLine()
    first, second = await joined(line, 2)
    given = engine()
    line.hand_over(given)
    given.state = "down"
    if lost:
        given.epoch, given.in_flight = given.epoch + 1, 0
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert given.in_flight == 0
    assert not second.done()
    line.look_again()
    assert await second is None


async def test_look_again_wakes_everybody_and_frees_no_slot() -> None:
    line = SlotLine()
    waiting = await joined(line, 2)
    waiting[0].cancel()
    line.look_again()
    assert len(line) == 0
    assert await waiting[1] is None
    assert waiting[0].cancelling()


async def test_who_was_woken_and_leaves_in_the_same_moment_takes_no_slot_along() -> None:
    line = SlotLine()
    (only,) = await joined(line, 1)
    line.look_again()
    only.cancel()
    await asyncio.gather(only, return_exceptions=True)
    assert only.cancelled()


@pytest.mark.parametrize(
    ("took_s", "slots", "retry_after_s"), [(0.001, 1, 1.0), (11.0, 1, 3.0), (11.0, 2, 1.5), (10_000.0, 1, 60.0)]
)
async def test_when_to_come_back_follows_how_long_requests_take(
    took_s: float, slots: int, retry_after_s: float
) -> None:
    """Each new request weighs a fifth; never less than a second, never more than a minute."""
    line = SlotLine()
    line.served(took_s)
    with pytest.raises(QueueFull) as caught:
        await line.wait(make_entry(max_instances=slots, queue_max_waiting=0), 30)
    assert caught.value.retry_after_s == pytest.approx(retry_after_s)


async def test_the_longest_wait_is_known_over_all_lines_and_who_leaves_does_not_count() -> None:
    line, other = SlotLine(), SlotLine()
    assert line.first() is None
    (first,) = await joined(line, 1)
    await joined(other, 1)
    (last,) = await joined(line, 1)
    numbers = line.first(), other.first()
    assert numbers[0] is not None
    assert numbers[1] == numbers[0] + 1
    first.cancel()
    assert line.first() == numbers[0] + 2
    last.cancel()
    assert line.first() is None
    other.look_again()
    await asyncio.gather(first, last, return_exceptions=True)
    assert len(line) == 0


@pytest.mark.parametrize("leaves", ["cancelled", "engine gone"])
async def test_a_slot_that_is_not_taken_is_passed_on_as_it_was_asked(leaves: str) -> None:
    passed: list[tuple[SlotLine, Engine]] = []
    line = SlotLine(lambda of, slot: passed.append((of, slot)))
    (only,) = await joined(line, 1)
    given = engine()
    assert line.hand_over(given)
    if leaves == "cancelled":
        only.cancel()
    else:
        given.state = "loading"
    await asyncio.gather(only, return_exceptions=True)
    assert passed == [(line, given)]
