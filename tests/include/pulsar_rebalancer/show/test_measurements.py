import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, name
from tests.monitoring import asked_for
from tests.project.documentation import ROOT

from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import BreakerRules, Pause
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Drain, Drains, Question
from pulsar_rebalancer.orders.order import Control, GivenOrder, OrdersInForce
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import ClientGap, MoveOutcome, Outcome, client_gap_summary
from pulsar_rebalancer.run.plan import SplitOutcome, Summary
from pulsar_rebalancer.show.measurements import METRIC_PREFIX, Measurement, measure_orders, run_measurements
from pulsar_rebalancer.state import StateDocument

OWNED = {"a": {name(1): 60.0, name(2): 20.0}, "b": {name(3): 30.0}, "c": {name(4): 10.0}, "d": {name(5): 99.0}}


def outcome(verdict: str = "open") -> Outcome:
    ended = [
        ("moved", ClientGap(clients_before=3, clients_back=3, clients_seconds=1.5)),
        ("moved", ClientGap(clients_before=3, clients_back=1, watched_seconds=15.0, errors=2)),
        ("astray", ClientGap(unknown="silent")),
        ("no_topic", None),
        ("not_attempted", None),
    ]
    moves = [
        MoveOutcome(
            bundle=name(at),
            source="a:1",
            destination="b:1",
            reason=reason,
            attempts=bool(client_gap),
            client_gap=client_gap,
        )
        for at, (reason, client_gap) in enumerate(ended)
    ]
    splits = [SplitOutcome(bundle=name(9), positions=(1,), reason="split")]
    return Outcome(
        plan_id="p",
        cluster="east",
        airflow_run_id="r",
        ended_at=NOW,
        verdict=verdict,
        moves=moves,
        splits=splits,
        client_gap=client_gap_summary(moves),
    )


@pytest.fixture
def told(tmp_path: Path) -> list[Measurement]:
    """Of a plan that somebody asked for: a broker was quarantined, two bundles moved, one went astray."""
    cluster = Snapshots(tmp_path, OWNED)
    cluster.quarantined = ["d:1"]
    summary, _ = cluster.show(action="unload", bundles=[name(1)], destination="c:1")
    run = cluster.storage.run_folder(summary.plan_id)
    assert run is not None
    counted = {"counting": "counted", "bundles_split": 1, "split_skip_reasons": {"no_position": 2}}
    Summary.model_validate(summary.model_dump() | counted).write(run)
    return [*run_measurements("east", run, outcome()), *measure_orders("east", cluster.settings, OrdersInForce(), NOW)]


def test_outcomes_are_counted_by_reason(told: list[Measurement]) -> None:
    counted = {
        (each.name, each.labels["reason"]): each.value for each in told if each.is_counter and "reason" in each.labels
    }

    assert counted == {
        ("moves", "moved"): 2,
        ("moves", "astray"): 1,
        ("moves", "no_topic"): 1,
        ("moves", "not_attempted"): 1,
        ("splits", "split"): 1,
        ("findings", "report_missing"): 1,
    }
    results = {each.labels["reason"]: each.labels["result"] for each in told if "result" in each.labels}
    assert results == {
        "moved": "done",
        "astray": "failed",
        "no_topic": "left",
        "not_attempted": "left",
        "split": "done",
    }


def test_states_are_sent_as_the_time_of_their_end(tmp_path: Path) -> None:
    order, minutes = {"at": NOW, "by": "ada", "reason": ""}, lambda number: NOW + timedelta(minutes=number)
    settings = Snapshots(tmp_path, OWNED).settings.model_copy(
        update={
            "mode": Mode.APPROVE,
            "max_awaiting_minutes": 60,
            "breaker": BreakerRules(failed_moves=1, minutes=30),
            "pause": Pause(until=minutes(5), reason="a holiday"),
        }
    )
    question = Question(plan_id="p", hash="h", at=minutes(-1))
    breaker = Breaker(opened_at=NOW, why="moves failed")
    roll = Roll(id="f", order=("a:1", "b:1", "c:1"), done={"c:1": Reason.ROLLED}, phase=Phase.RESTARTING)
    documents: tuple[StateDocument, ...] = (
        Control(orders=(GivenOrder(action="pause", until=minutes(10), **order),)),
        *(breaker, Drains(brokers={"a:1": Drain(**order)}), question, roll),
    )
    orders = OrdersInForce.build(*documents)

    def measured(orders: OrdersInForce, after: float = 1, **changed: Any) -> dict[str, float]:
        """The minutes from now; 0 stays 0."""
        found = measure_orders("east", settings.model_copy(update=changed), orders, minutes(after))
        at = NOW.timestamp()
        return {
            each.name.removesuffix("_timestamp_seconds"): (each.value - at) / 60
            if each.value > at - 3600
            else each.value
            for each in found
        }

    states = {
        "paused_until": 10,
        "breaker_open_until": 30,
        "brokers_drained": 1,
        "roll_phase": 3,
        "roll_brokers_left": 2,
    }
    waits, nothing_waits = (
        {"plan_waiting_since": since, "plan_waiting_until": until} for since, until in ((-1, 59), (0, 0))
    )
    assert measured(orders) == pytest.approx(states | waits)
    answered = Answers(plans={"p": Answer(question=question, **order)})
    assert measured(OrdersInForce.build(*documents, answered)) == pytest.approx(states | nothing_waits)
    assert measured(orders, after=61) == pytest.approx(states | nothing_waits)
    assert measured(orders, mode=Mode.AUTO) == pytest.approx(states | nothing_waits)
    closed = OrdersInForce.build(*documents, Control(orders=(GivenOrder(action="close_breaker", **order),)))
    assert measured(closed)["breaker_open_until"] == 0
    assert measured(closed)["paused_until"] == 5, "of the clusters file"
    over = measured(OrdersInForce.build(*documents, roll.stopped_roll(Reason.ROLL_STUCK, "", NOW, is_stranded=False)))
    assert (over["roll_phase"], over["roll_brokers_left"]) == (0, 0)


def test_dashboard_and_rules_ask_for_what_is_measured(told: list[Measurement]) -> None:
    sent = {
        (f"airflow_{METRIC_PREFIX.replace('.', '_')}{each.name}{'_total' if each.is_counter else ''}", label)
        for each in told
        for label in ("", *each.labels)
    }
    asked = {each for each in asked_for() if not each[0].startswith("airflow_task_")}

    assert asked - sent == set()
    assert {name for name, _ in sent} - {name for name, _ in asked} == set(), "measured, and looked at by nobody"
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = {name.removeprefix(METRIC_PREFIX) for name in re.findall(r"`([a-z_.]+)`", page)}
    assert {metric.name for metric in told} - names == set(), "no row in docs/metrics.md"
