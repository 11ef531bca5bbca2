"""The meter counts the clients of a move's bundle; its brokers answer what a test says."""

import asyncio
from itertools import repeat
from typing import Any

import pytest

from pulsar_rebalancer.carry_out import client_gap_meter
from pulsar_rebalancer.carry_out.client_gap_meter import ClientGapMeter
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar.bundle_calls import Clients
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import ClientGap, MoveOutcome
from pulsar_rebalancer.run.plan import Move

MOVE = Move(bundle="acme/shop/0x0_0x1", source="a:1", destination="b:1", wave=0, traffic=1.0, measure="msg_rate")
TOPIC = "persistent://acme/shop/t"


class Brokers:
    """Brokers with one topic of the bundle; the last answer is given again and again."""

    def __init__(self, *answers: int | AdminError, listed: Any = None) -> None:
        connected: dict[str, Any] = {"publishers": [{}], "subscriptions": {}}
        self._listed, self._answers = connected if listed is None else listed, list(answers)
        self.bundles = self

    async def topic_stats(self, *_: object) -> Any:
        return {"acme/shop": {"0x0_0x1": {"persistent": {TOPIC: self._listed}}}}

    async def clients(self, *_: object) -> Clients:
        answer = self._answers.pop(0) if self._answers[1:] else self._answers[0]
        if isinstance(answer, AdminError):
            raise answer
        return Clients(answer, 0)


@pytest.fixture(autouse=True)
def half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are awaited for half a second, and counted all the time."""
    monkeypatch.setattr(client_gap_meter, "WATCHED_S", 0.5)
    monkeypatch.setattr(client_gap_meter, "pauses", lambda _: repeat(0.01))


class Measured:
    """A move that unloads its bundle once."""

    def __init__(self, brokers: Any) -> None:
        self.reported: list[ClientGap] = []
        self.meter = ClientGapMeter(brokers, [MOVE], lambda _, client_gap: self.reported.append(client_gap))
        self.move = self.meter.of(MOVE, again=False)

    async def unload(self) -> ClientGap | None:
        await self.move.before(asyncio.sleep(0))
        ends = {"bundle": MOVE.bundle, "source": "a:1", "destination": "b:1", "owner": "b:1"}
        return self.move.ended(MoveOutcome(**ends, reason=Reason.MOVED, attempts=1)).client_gap


def test_a_topic_without_client_statistics_leaves_the_client_gap_unknown() -> None:
    client_gap = asyncio.run(Measured(Brokers(2, listed={})).unload())

    assert client_gap is not None
    assert client_gap.clients_before is None
    assert "do not say which" in client_gap.unknown


def test_clients_that_never_return_are_late() -> None:
    async def back() -> bool | None:
        measured = Measured(Brokers(2, 0))
        await measured.unload()
        return await measured.move.back_within(60)

    assert asyncio.run(back()) is False


def test_an_answer_before_an_error_is_not_the_final_count() -> None:
    async def reported() -> list[ClientGap]:
        measured = Measured(Brokers(2, 1, AdminError(Reason.UNREACHABLE, "b:1 is gone")))
        await measured.unload()
        await measured.meter.finish(lambda: None)
        return measured.reported

    [client_gap] = asyncio.run(reported())
    assert (client_gap.unknown, client_gap.clients_back) == ("b:1 is gone", None)


def test_counting_does_not_prolong_a_wave_of_ten_minutes() -> None:
    async def reported() -> list[ClientGap]:
        measured = Measured(Brokers(2, 0))
        await measured.unload()
        measured.meter._started -= 600
        await measured.meter.finish(lambda: None)
        found = list(measured.reported)
        await measured.meter.close()
        return found

    assert asyncio.run(reported()) == []
