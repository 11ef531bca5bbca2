from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.in_force import all_holds, orders_sentence
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Drain, Drains, Question
from pulsar_rebalancer.orders.order import Control, GivenOrder, JudgedRun, OrdersInForce
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import StateDocument

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def ordered(action: str, **given: Any) -> Control:
    order = {"at": NOW - HOUR, "by": "ada", "reason": "new disks"} | given
    return Control(orders=(GivenOrder(action=action, **order),))


BREAKER = {"breaker": {"failed_moves": 2}}
OPENED = Breaker(opened_at=NOW - 1.5 * HOUR / 2, why="3 moves of a run failed or landed on the wrong broker")
AT = NOW - HOUR / 2
WAITS = Question(plan_id="p", what="move 4 bundles", at=AT, run_id="ask__p")
REJECTED = Answers(plans={"p": Answer(question=WAITS, at=AT, by="bob", reason="too many")})
APPROVED = Answers(plans={"p": REJECTED.plans["p"].model_copy(update={"carried_out_by": "approved__p"})})
ROLL = Roll(id="0a1b", by="bob", order=("b:1",), turn_at=NOW)
STRANDED = ROLL.stopped_roll(Reason.ROLL_STOPPED, "enough", NOW, is_stranded=True)
DRAINED = Drains(brokers={"b:1": Drain(at=NOW, by="bob", reason="new disks")})
APPROVE = {"mode": "approve"}
BLACKOUT = {"start": "2026-11-22T11:00", "end": "2026-11-22T13:00", "reason": "a report"}
WINDOW = {"cron": "0 13 * * *", "minutes": 60}


def said(given: dict[str, Any], documents: tuple[StateDocument, ...] = (), **told: Any) -> str:
    settings = Settings.model_validate({"mode": "auto"} | given)
    orders = replace(OrdersInForce.build(*documents), **told)
    closed = all_holds(settings, orders, NOW, JudgedRun(NOW))
    return orders_sentence(settings, closed, orders, NOW)


CLOSED, CARRIED, WAIT = "Nothing is moved: mode auto", "Moves are carried out: mode auto", "Moves wait for approval"


@pytest.mark.parametrize(
    ("given", "told", "expected"),
    [
        ({}, {}, CARRIED),
        ({"mode": "observe"}, {}, "Nothing is moved: mode observe"),
        ({"mode": False}, {}, "Nothing is moved: mode off"),
        (APPROVE, {}, f"{WAIT}: mode approve"),
        (
            {"pause": {"until": NOW + HOUR, "reason": "holiday"}},
            {},
            f"{CLOSED}; paused until 13:00 UTC (clusters file: holiday)",
        ),
        (
            {},
            {"documents": (ordered("pause", by="bob", reason="x", until=NOW + HOUR),)},
            f"{CLOSED}; paused until 13:00 UTC (bob: x)",
        ),
        ({}, {"documents": (ordered("skip"),)}, f"{CLOSED}; one run is skipped by ada: new disks"),
        ({}, {"documents": (ordered("stop"),)}, CARRIED),  # nothing is under way
        ({}, {"documents": (ordered("stop"),), "run_started_at": NOW - HOUR / 2}, CARRIED),  # it began later
        (
            {},
            {"documents": (ordered("stop"),), "run_started_at": NOW - 2 * HOUR},
            f"{CARRIED}; stopped by ada: new disks",
        ),
        ({}, {"lost_text": "drains: missing"}, f"{CLOSED}; the state and perhaps orders are lost: drains: missing"),
        (
            {"blackouts": [BLACKOUT]},
            {},
            f"{CLOSED}; blackout until 2026-11-22 13:00 UTC: a report; no moves during 1 blackout of the clusters file",
        ),
        (
            {"maintenance_windows": [WINDOW]},
            {},
            f"{CLOSED}; outside the maintenance windows until 2026-11-22 13:00 UTC; "
            "bundles move only within 1 maintenance window of the clusters file",
        ),
        (
            {"maintenance_windows": [WINDOW | {"cron": "0 12 * * *"}]},
            {},
            f"{CARRIED}; bundles move only within 1 maintenance window of the clusters file",
        ),
        ({}, {"documents": (ROLL,)}, f"Only moves of the rolling restart are carried out: mode auto; {ROLL.progress}"),
        (APPROVE, {"documents": (ROLL,)}, f"{WAIT}: mode approve; {ROLL.progress}"),
        ({}, {"documents": (STRANDED, DRAINED)}, f"{CARRIED}; b:1 is drained by bob: new disks; {STRANDED.progress}"),
        (BREAKER, {}, f"{CARRIED}; the clusters file sets a circuit breaker"),
        (
            BREAKER,
            {"documents": (OPENED,)},
            f"{CLOSED}; circuit breaker open until 2026-11-22 12:15 UTC: {OPENED.why}; "
            "the clusters file sets a circuit breaker",
        ),
        (
            BREAKER,
            {"documents": (OPENED, ordered("close_breaker", at=NOW, by="bob", reason="mended"))},
            f"{CARRIED}; the circuit breaker was closed by bob: mended; the clusters file sets a circuit breaker",
        ),
        (
            {},
            {"documents": (Drains(brokers={"b:1": Drain(at=NOW, by="bob", reason="old disks")}),)},
            f"{CARRIED}; b:1 is drained by bob: old disks",
        ),
        (
            APPROVE,
            {"documents": (WAITS,)},
            f"{WAIT}: mode approve; a plan to move 4 bundles waits for approval until 2026-11-22 12:30 UTC",
        ),
        (APPROVE | {"max_awaiting_minutes": 29}, {"documents": (WAITS,)}, f"{WAIT}: mode approve"),
        ({}, {"documents": (WAITS,)}, CARRIED),  # of a mode that was
        (APPROVE, {"documents": (WAITS, APPROVED)}, f"{WAIT}: mode approve"),
        (
            APPROVE,
            {"documents": (WAITS, REJECTED)},
            f"{WAIT}: mode approve; Airflow asks nobody about the moves of plan p before 12:30 UTC, because "
            "these moves were rejected by bob: too many",
        ),
        (
            {"max_bundles_per_run": 50, "max_bundles_per_broker": 5, "max_bytes_per_run": 1e8},
            {},
            f"{CARRIED}; caps from the clusters file: 50 bundles per run, 5 bundles per broker, "
            "100000000 bytes/s per run",
        ),
        (
            {"excluded_bundles": ["t/a/*", "t/b/*", "t/c/*", "t/d/*"], "excluded_brokers": ["b:1"]},
            {"setting_origins": {"excluded_brokers": Origin.PARAMS}},
            f"{CARRIED}; excluded bundles set by the clusters file: t/a/*, t/b/*, t/c/* and 1 more; "
            "excluded brokers set by this run's parameters: b:1",
        ),
        (
            {"max_bundles_per_run": 50, "max_bundles_per_broker": 5, "excluded_namespaces": ["t/a"]},
            {"setting_origins": {"max_bundles_per_run": Origin.PARAMS, "excluded_namespaces": Origin.BROKERS}},
            f"{CARRIED}; caps from the clusters file: 5 bundles per broker; "
            "caps from this run's parameters: 50 bundles per run; excluded namespaces set by the brokers: t/a",
        ),
        (
            {"pause": {"until": NOW + HOUR, "reason": "one\n\u202etwo"}},
            {},
            f"{CLOSED}; paused until 13:00 UTC (clusters file: one two)",
        ),
    ],
)
def test_all_that_is_in_force_is_said(given: dict[str, Any], told: dict[str, Any], expected: str) -> None:
    assert said(given, **told) == expected
