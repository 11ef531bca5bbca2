"""The log of a run and its alerts name the thresholds of the strategy that decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow_runs import CLUSTER, make_run

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.show.alerts.alert_conditions import EndedRun
from pulsar_rebalancer.show.alerts.messages import figures_of
from pulsar_rebalancer.show.run_text import describe
from pulsar_rebalancer.storage.layout import ClusterStorage

if TYPE_CHECKING:
    from pathlib import Path

HITS = "most low 8 of 6, most high 0 of 3"


@pytest.mark.parametrize("strategy", list(Strategy))
def test_only_a_strategy_with_pairs_shows_thresholds_and_hits(tmp_path: Path, strategy: Strategy) -> None:
    limits: dict[str, Any] = {"low_threshold": 20, "hit_count_low": 6, "hit_count_high": 3}
    run = make_run(ClusterStorage(str(tmp_path), CLUSTER), strategy=strategy, **limits)
    summary = Summary.read(run)
    outcome = Outcome(
        plan_id=run.name, cluster=CLUSTER, airflow_run_id="manual__1", ended_at=summary.collected_at, verdict="observe"
    )

    text, figures = describe(outcome, run).splitlines(), figures_of(EndedRun({}, summary=summary))

    assert "  fired:   0; 0 bundles to be moved" in text
    if strategy in (Strategy.AVG, Strategy.GAIN):
        assert "  pairs:   1, 1 at or above 20" in text
        assert f"  hits:    {HITS} (counted)" in text
        assert f"hits: {HITS}" in figures
    else:
        assert not any("pairs" in line or "hits" in line for line in [*text, *figures])
