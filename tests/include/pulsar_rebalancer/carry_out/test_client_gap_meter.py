"""The meter counts the clients of a move's bundle; its brokers answer what a test says."""

import asyncio
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_rebalancer.carry_out import client_gap_meter
from pulsar_rebalancer.carry_out.client_gap_meter import ClientGapMeter
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar.bundle_calls import ClientCounts
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import ClientGap, MoveOutcome
from pulsar_rebalancer.run.plan import Move

MOVE = Move(bundle="acme/shop/0x0_0x1", source="a:1", destination="b:1", wave=0, traffic=1.0, measure="msg_rate")
TOPIC = "persistent://acme/shop/t"
CONNECTED: dict[str, Any] = {"publishers": [{}], "subscriptions": {}}
ERROR = AdminError(Reason.BAD_ANSWER, "no statistics", status=500)
GONE = AdminError(Reason.UNREACHABLE, "b:1 is gone")


class Brokers:
    """Brokers with one bundle; the last answer about a topic is given again and again."""

    def __init__(self, *answers: int | ClientCounts | Exception | None, listed: Any = CONNECTED, **topics: Any) -> None:
        self._topics, self._answers = {TOPIC: listed} | topics, list(answers)
        self.bundles = self
        self.asked = 0
        self.answering = asyncio.Event()
        self.answering.set()

    async def topic_stats(self, *_: object) -> Any:
        await self.answering.wait()
        if isinstance(self._topics[TOPIC], Exception):
            raise self._topics[TOPIC]
        return {"acme/shop": {"0x0_0x1": {"persistent": self._topics if self._topics[TOPIC] else {}}}}

    async def count_clients(self, *_: object) -> ClientCounts:
        self.asked += 1
        answer = self._answers.pop(0) if self._answers[1:] else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ClientCounts):
            return answer
        if answer is not None:
            return ClientCounts(answer, answer)
        await asyncio.sleep(60)
        raise AssertionError


@pytest.fixture(autouse=True)
def half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_gap_meter, "MAX_WATCH_S", 0.5)
    monkeypatch.setattr(client_gap_meter, "retry_delays", lambda _: repeat(0.01))


class Measured:
    """A move that unloads its bundle once."""

    def __init__(self, brokers: Any) -> None:
        self.reported: list[ClientGap] = []
        self.meter = ClientGapMeter(brokers, [MOVE], lambda _, client_gap: self.reported.append(client_gap))
        self.move = self.meter.new_measurement(MOVE, is_retry=False)

    async def unload(self, reason: Reason = Reason.MOVED, owner: str = "b:1", attempts: int = 1) -> ClientGap | None:
        await self.move.count_clients_before_unload(asyncio.sleep(0))
        ends = {"bundle": MOVE.bundle, "source": "a:1", "destination": "b:1", "owner": owner}
        return self.move.outcome_with_gap(MoveOutcome(**ends, reason=reason, attempts=attempts)).client_gap

    async def report(self) -> ClientGap:
        """Unload, wait for the clients and return what was reported; without any, what is known at once."""
        at_once = await self.unload()
        await self.meter.wait_for_clients(lambda: None)
        assert at_once is not None
        return self.reported[0] if self.reported else at_once


@pytest.mark.parametrize(
    ("brokers", "unknown"),
    [
        (Brokers(2, listed={"publishers": None}), "do not say which"),
        (Brokers(2, listed=None), "do not say which"),
        (Brokers(2, listed=ValueError("odd")), "ValueError, see the task's log"),
        (Brokers(ERROR), "no broker returned statistics for the topics that have clients"),
    ],
)
def test_a_topic_without_client_statistics_leaves_the_client_gap_unknown(brokers, unknown):
    async def found() -> tuple[ClientGap | None, bool | None]:
        measured = Measured(brokers)
        return await measured.unload(), await measured.move.clients_reconnected_within(60)

    client_gap, in_time = asyncio.run(found())
    assert client_gap is not None
    assert (client_gap.clients_before, in_time) == (None, None)
    assert unknown in client_gap.unknown


def test_clients_of_the_topics_that_have_statistics_are_measured():
    brokers = Brokers(2, silent={"publishers": None}, **{"segment://acme/shop/t/0": CONNECTED})
    client_gap = asyncio.run(Measured(brokers).report())
    assert (client_gap.topics, client_gap.topics_measured, client_gap.clients_back) == (2, 2, 8)


@pytest.mark.parametrize("listed", [CONNECTED, CONNECTED | {"publishers": []}], ids=["gone since", "none"])
def test_a_bundle_without_clients_is_in_time_and_nothing_is_measured(listed, caplog):
    async def found() -> tuple[ClientGap, bool | None]:
        measured = Measured(Brokers(0, listed=listed))
        return await measured.report(), await measured.move.clients_reconnected_within(60)

    client_gap, in_time = asyncio.run(found())
    assert in_time is True
    assert (client_gap.clients_before, client_gap.topics_measured, client_gap.unknown) == (0, 0, "")
    measures = (client_gap.clients_seconds, client_gap.watched_seconds, client_gap.clients_back, client_gap.errors)
    assert measures == (None,) * 4
    assert not caplog.records


def test_a_single_client_is_measured():
    assert asyncio.run(Measured(Brokers(ClientCounts(1, 0))).report()).clients_back == 1


@pytest.mark.parametrize(
    ("error", "topic", "counted"),
    [
        (AdminError(Reason.BAD_ANSWER, "", status=400), TOPIC, None),
        (AdminError(Reason.NOT_FOUND, "", status=404), TOPIC, None),
        (AdminError(Reason.NOT_FOUND, "", status=404), f"non-{TOPIC}", ClientCounts(0, 0)),
        (ERROR, f"non-{TOPIC}", None),
        (AdminError(Reason.BAD_ANSWER, "", status=399), TOPIC, AdminError),
        (AdminError(Reason.FORBIDDEN, "", status=403), TOPIC, AdminError),
        (GONE, TOPIC, AdminError),
    ],
)
def test_an_error_response_is_a_missing_count_and_silence_or_refusal_an_error(error, topic, counted):
    counting = Measured(Brokers(error)).meter.count_clients(topic, "b:1")
    if counted is AdminError:
        with pytest.raises(AdminError):
            asyncio.run(counting)
    else:
        assert asyncio.run(counting) == counted


def test_a_slow_source_is_not_waited_for_again_until_it_has_answered(monkeypatch):
    async def unknown() -> list[str]:
        brokers = Brokers(2)
        brokers.answering.clear()
        measured, found = Measured(brokers), []
        monkeypatch.setattr(client_gap_meter, "MAX_COUNT_BEFORE_S", 0.05)
        found.append(await measured.unload())
        monkeypatch.setattr(client_gap_meter, "MAX_COUNT_BEFORE_S", 60.0)
        for answering in (False, True):
            if answering:
                brokers.answering.set()
                await asyncio.wait(measured.meter._topic_tasks.values())
            measured.move = measured.meter.new_measurement(MOVE, is_retry=False)
            async with asyncio.timeout(5):
                found.append(await measured.unload())
        await measured.meter.close()
        return [client_gap.unknown for client_gap in found if client_gap]

    slow = "a:1 did not say within {} s which clients are connected"
    awaited = "the task ended before the bundle's clients were counted"
    assert asyncio.run(unknown()) == [slow.format("0.05"), slow.format(60), awaited]


@pytest.mark.parametrize(
    ("ended", "seconds", "in_time"),
    [
        ({}, 60, True),
        ({}, 0.0, False),
        ({"attempts": 0}, 60, None),
        ({"attempts": 2}, 60, False),
        ({"reason": Reason.UNKNOWN_OWNER, "owner": ""}, 60, False),
    ],
)
def test_clients_are_in_time_after_one_unload_to_a_new_owner(ended, seconds, in_time):
    async def back() -> bool | None:
        measured = Measured(Brokers(2))
        await measured.unload(**ended)
        return await measured.move.clients_reconnected_within(seconds)

    assert asyncio.run(back()) is in_time


def test_clients_that_return_later_are_late_and_those_at_the_limit_in_time():
    async def back() -> tuple[bool | None, bool | None]:
        measured = Measured(Brokers(2, *[0] * 20, 2))
        await measured.unload()
        late = await measured.move.clients_reconnected_within(0.1)
        await measured.meter.wait_for_clients(lambda: None)
        seconds = measured.reported[0].clients_seconds
        assert seconds is not None
        return late, await measured.move.clients_reconnected_within(seconds)

    assert asyncio.run(back()) == (False, True)


def test_times_are_rounded_to_milliseconds_and_reasons_cut(monkeypatch):
    async def reported(brokers: Brokers) -> ClientGap:
        clock: Any = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
        monkeypatch.setattr(client_gap_meter, "time", clock)
        measured = Measured(brokers)
        await measured.move.count_clients_before_unload(asyncio.sleep(0))
        clock.now = 1.23456
        ends = {"bundle": MOVE.bundle, "source": "a:1", "destination": "b:1", "owner": "b:1"}
        measured.move.outcome_with_gap(MoveOutcome(**ends, reason=Reason.MOVED, attempts=1))
        await measured.meter.wait_for_clients(lambda: None)
        return measured.reported[0]

    client_gap = asyncio.run(reported(Brokers(2)))
    assert (client_gap.owner_seconds, client_gap.clients_seconds) == (1.235, 1.235)
    silent = asyncio.run(reported(Brokers(2, AdminError(Reason.UNREACHABLE, "x" * 400))))
    assert len(silent.unknown) == 300


def test_without_clients_the_owner_must_be_in_time(monkeypatch):
    async def in_time() -> list[bool | None]:
        clock: Any = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
        monkeypatch.setattr(client_gap_meter, "time", clock)
        measured = Measured(Brokers(0, listed=CONNECTED | {"publishers": []}))
        await measured.move.count_clients_before_unload(asyncio.sleep(0))
        clock.now = 1.0
        ends = {"bundle": MOVE.bundle, "source": "a:1", "destination": "b:1", "owner": "b:1"}
        measured.move.outcome_with_gap(MoveOutcome(**ends, reason=Reason.MOVED, attempts=1))
        return [await measured.move.clients_reconnected_within(seconds) for seconds in (0.9, 1.0)]

    assert asyncio.run(in_time()) == [False, True]


def test_a_bundle_without_an_owner_leaves_the_client_gap_unknown():
    client_gap = asyncio.run(Measured(Brokers(2)).unload(Reason.UNKNOWN_OWNER, owner=""))
    assert client_gap is not None
    assert client_gap.unknown == "the bundle has no known owner"


def test_a_bundle_that_an_earlier_attempt_may_have_unloaded_is_not_measured():
    async def found() -> tuple[ClientGap | None, bool | None]:
        measured = Measured(Brokers(2))
        measured.move = measured.meter.new_measurement(MOVE, is_retry=True)
        return await measured.unload(), await measured.move.clients_reconnected_within(60)

    client_gap, in_time = asyncio.run(found())
    assert client_gap is not None
    assert "earlier attempt" in client_gap.unknown
    assert (client_gap.owner_seconds, client_gap.clients_before, in_time) == (None, None, None)


def test_clients_that_never_return_are_late():
    async def back() -> bool | None:
        measured = Measured(Brokers(2, 0))
        await measured.unload()
        return await measured.move.clients_reconnected_within(60)

    assert asyncio.run(back()) is False


@pytest.mark.parametrize(
    ("answers", "unknown", "back", "errors"),
    [
        ((2, 1, GONE), "b:1 is gone", None, None),
        ((2, GONE, 2), "", 4, 0),
        ((2, ERROR), "", 0, 1),
        ((2, None), "b:1 did not answer", None, None),
        ((2, 1, ValueError("odd")), "ValueError, see the task's log", None, None),
    ],
)
def test_the_last_answer_is_the_final_count(answers, unknown, back, errors):
    client_gap = asyncio.run(Measured(Brokers(*answers)).report())
    assert (client_gap.unknown, client_gap.clients_back, client_gap.errors) == (unknown, back, errors)


def test_a_broker_that_refuses_is_not_asked_again():
    brokers = Brokers(2, AdminError(Reason.FORBIDDEN, "no", status=403))
    assert asyncio.run(Measured(brokers).report()).unknown == "no"
    assert brokers.asked == 2


def test_counting_does_not_prolong_a_wave_of_ten_minutes():
    async def reported() -> list[ClientGap]:
        measured = Measured(Brokers(2, 0))
        await measured.unload()
        measured.meter._started_at -= 600
        await measured.meter.wait_for_clients(lambda: None)
        await measured.meter.close()
        return measured.reported

    assert asyncio.run(reported()) == []
