import asyncio
from typing import Any, cast

import pytest

from pulsar_rebalancer.carry_out.client_gap_meter import ClientGapMeasurement
from pulsar_rebalancer.carry_out.move_executor import AdaptivePace, MoveQueue, carry_out_moves
from pulsar_rebalancer.pulsar import BundleAdmin
from pulsar_rebalancer.run.plan import Move

LIMIT = 5


class Returned:
    def __init__(self, in_time: bool | None) -> None:
        self._in_time = in_time

    async def clients_reconnected_within(self, _: float) -> bool | None:
        return self._in_time


def moves(count: int, source: str = "a:1", destination: str = "b:1") -> list[Move]:
    given: dict[str, Any] = {"source": source, "destination": destination, "wave": 0, "traffic": 1, "measure": "m"}
    return [Move(bundle=f"acme/{source}/{destination}/{number}", **given) for number in range(count)]


class Rounds:
    """Moves that begin as soon as they may, and end together."""

    def __init__(self) -> None:
        self.pace = AdaptivePace(1, LIMIT)
        self.waiting = moves(1000)

    def play(self, *in_time: bool | None) -> list[int]:
        """Return how many moves begin in each round; its argument says whether clients are back in time."""
        return [self._round(answer) for answer in in_time]

    def begun(self) -> list[Move]:
        begun = []
        while self.pace.try_begin_move(self.waiting[0]):
            begun.append(self.waiting.pop(0))
        return begun

    def end(self, move: Move, in_time: bool | None) -> None:
        asyncio.run(self.pace.end_move(move, cast("ClientGapMeasurement", Returned(in_time))))

    def _round(self, in_time: bool | None) -> int:
        begun = self.begun()
        for move in begun:
            self.end(move, in_time)
        return len(begun)


def test_move_in_time_raises_the_pace_by_one_up_to_the_limit() -> None:
    assert Rounds().play(*[True] * 5) == [1, 2, 4, 5, 5]


def test_late_clients_halve_the_number_once_for_bundles_that_were_under_way_together() -> None:
    """From then on, it grows by one with each round."""
    assert Rounds().play(True, True, False, True, True, True, False, False) == [1, 2, 4, 2, 3, 4, 5, 2]


def test_a_move_that_is_late_at_once_slows_the_growth() -> None:
    assert Rounds().play(False, True, True, True, True) == [1, 1, 2, 3, 4]


def test_moves_whose_clients_are_unknown_leave_the_pace() -> None:
    assert Rounds().play(True, True, None, None, True) == [1, 2, 4, 4, 4]


def test_a_move_waits_while_one_of_its_brokers_is_busy() -> None:
    pace = AdaptivePace(1, LIMIT)
    onto_b, onto_c = moves(1)[0], moves(1, "a:1", "c:1")[0]
    assert pace.try_begin_move(onto_b)
    assert not pace.try_begin_move(onto_c)


def test_a_queue_that_is_cleared_releases_the_workers_that_wait() -> None:
    async def released() -> int | None:
        queue = MoveQueue(moves(2), AdaptivePace(1, LIMIT))
        assert await queue.next_index() == 0
        waiting = asyncio.create_task(queue.next_index())
        await asyncio.sleep(0)
        await queue.clear_remaining_moves()
        async with asyncio.timeout(5):
            return await waiting

    assert asyncio.run(released()) is None


def test_a_move_between_free_brokers_overtakes_those_that_wait_and_nothing_is_left_over() -> None:
    wave = [*moves(20), *moves(3, "c:1", "d:1")]
    begun: list[int] = []

    async def work(queue: MoveQueue) -> None:
        while (number := await queue.next_index()) is not None:
            begun.append(number)
            await asyncio.sleep(0)
            await queue.record_end(wave[number], cast("ClientGapMeasurement", Returned(in_time=True)))

    async def carry_out() -> None:
        queue = MoveQueue(wave, AdaptivePace(1, LIMIT))
        async with asyncio.timeout(60):
            await asyncio.gather(*(work(queue) for _ in range(23)))

    asyncio.run(carry_out())
    assert begun[:2] == [0, 20]
    assert sorted(begun) == list(range(23))


def test_an_ended_move_wakes_all_workers_whose_moves_may_begin() -> None:
    wave = [
        *moves(1),
        *(moves(1, *ends)[0] for ends in (("a:1", "c:1"), ("a:1", "d:1"), ("e:1", "b:1"), ("f:1", "b:1"))),
    ]

    async def begun() -> set[int | None]:
        queue = MoveQueue(wave, AdaptivePace(1, LIMIT))
        assert await queue.next_index() == 0
        waiting = [asyncio.create_task(queue.next_index()) for _ in range(3)]
        await asyncio.sleep(0)
        await queue.record_end(wave[0], cast("ClientGapMeasurement", Returned(in_time=True)))
        async with asyncio.timeout(5):
            return {await queue.next_index(), *await asyncio.gather(*waiting)}

    assert asyncio.run(begun()) == {1, 2, 3, 4}


def test_a_wave_whose_counting_fails_leaves_no_counting_behind() -> None:
    class Meter:
        closed = False

        async def wait_for_clients(self, _: object) -> None:
            raise RuntimeError("lost")

        async def close(self) -> None:
            self.closed = True

    meter: Any = Meter()
    limits: dict[str, Any] = {"concurrency": 1, "timeout_seconds": 1, "on_outcome": print}
    with pytest.raises(RuntimeError, match="lost"):
        asyncio.run(carry_out_moves(cast("BundleAdmin", None), [], **limits, meter=meter))
    assert meter.closed
