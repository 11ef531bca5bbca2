"""What is measured of a run."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import pytest
from tests.include.pulsar_rebalancer.decide.by_hand.snapshots import NOW, Snapshots, name
from tests.monitoring import asked_for
from tests.project.documentation import ROOT

from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome
from pulsar_rebalancer.run.plan import ShadowPlan
from pulsar_rebalancer.run.splits import SplitOutcome
from pulsar_rebalancer.show.measurements import PREFIX, measure
from pulsar_rebalancer.state.manual_plans import Drain, Drains

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.show.measurements import Measurement

OWNED = {"a": {name(1): 60.0, name(2): 20.0}, "b": {name(3): 30.0}, "c": {name(4): 10.0}, "d": {name(5): 99.0}}


def outcome(verdict: str = "open") -> Outcome:
    moves = [
        MoveOutcome(bundle=name(at), source="a:1", destination="b:1", reason=reason)
        for at, reason in enumerate(["moved", "moved", "astray", "no_topic", "not_attempted"])
    ]
    splits = [SplitOutcome(bundle=name(9), positions=(1,), reason="split")]
    return Outcome(
        plan_id="p", cluster="east", airflow_run_id="r", ended_at=NOW, verdict=verdict, moves=moves, splits=splits
    )


@pytest.fixture
def told(tmp_path: Path) -> list[Measurement]:
    """Of a plan that somebody asked for: a broker was quarantined, two bundles moved, one went astray."""
    cluster = Snapshots(tmp_path, OWNED)
    cluster.quarantined = ["d:1"]
    summary, _ = cluster.show(action="unload", bundles=[name(1)], destination="c:1")
    run = cluster.storage.run(summary.plan_id)
    assert run is not None
    shadow = ShadowPlan(strategy="GainShedder", bundles_taken=3, predicted_range=12.5)
    summary.model_copy(update={"shadow": shadow}).write(run)
    return measure("east", run, outcome())


def test_scores_are_of_the_brokers_that_were_judged(told: list[Measurement]) -> None:
    found = {each.labels.get("broker") or each.name: each.value for each in told if each.name.startswith("score")}

    assert found == pytest.approx(
        {
            "a_1": 80.0,
            "b_1": 30.0,
            "c_1": 10.0,
            "score_mean": 40.0,
            "score_range": 70.0,
            "score_stddev": math.sqrt((40**2 + 10**2 + 30**2) / 3),
        }
    )


def test_drained_and_excluded_brokers_are_compared_with_nobody(tmp_path: Path) -> None:
    cluster = Snapshots(tmp_path, OWNED)
    cluster.settings = cluster.settings.model_copy(update={"excluded_brokers": ("d:1",)})
    drains = Drains(brokers={"c:1": Drain(at=NOW, by="ada", reason="new disks")})
    found = {
        each.name: each.value for each in measure("east", cluster.take(drains=drains.model_dump(mode="json")), None)
    }

    assert (found["brokers"], found["score_range"]) == pytest.approx((2, 50))


def test_what_happened_is_counted_by_reason(told: list[Measurement]) -> None:
    counted = {(each.name, each.labels["reason"]): each.value for each in told if each.counter and each.name != "runs"}

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


@pytest.mark.parametrize(("collected", "verdict"), [(False, "unfinished"), (True, "blocked")])
def test_a_run_that_came_to_nothing_is_counted(tmp_path: Path, collected: bool, verdict: str) -> None:
    run = Snapshots(tmp_path, OWNED).take() if collected else None
    told = measure("east", run, outcome(verdict) if collected else None)

    assert [each.labels["verdict"] for each in told if each.name == "runs"] == [verdict]
    assert ("collected_timestamp_seconds" in {each.name for each in told}) is collected


def test_dashboard_and_rules_ask_for_what_is_measured(told: list[Measurement]) -> None:
    sent = {
        (f"airflow_{PREFIX.replace('.', '_')}{each.name}{'_total' if each.counter else ''}", label)
        for each in told
        for label in ("", *each.labels)
    }
    asked = {each for each in asked_for() if not each[0].startswith("airflow_task_")}

    assert asked - sent == set()
    assert {name for name, _ in sent} - {name for name, _ in asked} == set(), "measured, and looked at by nobody"
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = {name.removeprefix(PREFIX) for name in re.findall(r"`([a-z_.]+)`", page)}
    assert {metric.name for metric in told} - names == set(), "no row in docs/metrics.md"
