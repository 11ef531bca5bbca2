"""One sample is one hit, whatever the parameters of a run: from a run's folder to the state that its plan leaves."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.clusters_file import THRESHOLD_FIELDS, RunParams
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.state import DecisionState, HitCount, StrategyState
from pulsar_rebalancer_spark.rebalance import decide_run

PATIENT = {"low_threshold": 15, "high_threshold": 1000, "hit_count_low": 8}
OWN = RunParams(hit_count_low=1)
FORCE = RunParams(force="hot broker")


class Cluster:
    """A cluster of four brokers, judged again and again: by default nothing changes between two runs."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.content = runs.tables("east", 4, 20)
        self.state = DecisionState()
        self.now = runs.NOW

    def run(self, seconds: float, params: RunParams | None = None, **given: Any) -> Summary:
        """Judge it so many seconds after the last run, record the plan, and carry it out in mode `auto`."""
        self.now += timedelta(seconds=seconds)
        params = params or RunParams()
        changed = params.model_dump(exclude_none=True, include=set(THRESHOLD_FIELDS))
        settings = PATIENT | {"mode": "auto"} | given | changed
        self.folder = runs.make(self.root, self.content, state=self.state, params=params, at=self.now, **settings)
        summary = decide_run(lambda: self.spark, RunInput.read(self.folder.uri))
        self.state = plan.read_plan_state(self.folder)
        if settings["mode"] == "auto":
            self.state = self.state.with_hits_reset()
        return summary

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.content["brokers"]["broker"].to_pylist()]

    def use(self, cpu: list[float]) -> None:
        rows = self.content["brokers"].to_pylist()
        for row, usage in zip(rows, cpu, strict=True):
            row["cpu_usage"] = usage
        self.content["brokers"] = pa.Table.from_pylist(rows, schema=self.content["brokers"].schema)

    def start_with(self, low: int) -> None:
        """Start with so many low hits of each broker, counted just now."""
        hits = dict.fromkeys(self.names, HitCount(0, low))
        self.state = DecisionState(seq=7, counted_at=self.now, strategy=Strategy.AVG, hits=hits)

    def lose(self, number: int) -> None:
        gone = self.names[number]
        for table in ("brokers", "bundles"):
            rows = [row for row in self.content[table].to_pylist() if row["broker"] != gone]
            self.content[table] = pa.Table.from_pylist(rows, schema=self.content[table].schema)

    def sample_anew(self, *brokers: int) -> None:
        """Some brokers look at their machine again."""
        rows = self.content["brokers"].to_pylist()
        for number in brokers:
            rows[number]["cpu_usage"] += 0.1
        self.content["brokers"] = pa.Table.from_pylist(rows, schema=self.content["brokers"].schema)

    @property
    def transfer_hits(self) -> int:
        return StrategyState.parse({}, self.state.strategy_state).shedder.cluster_hits

    @property
    def low_hits(self) -> list[int]:
        return [self.state.hits.get(name, HitCount()).low for name in self.names]


@pytest.fixture
def cluster(spark: SparkSession, tmp_path: Path) -> Cluster:
    return Cluster(spark, tmp_path)


def test_thresholds_of_its_own_do_not_make_a_second_hit_of_a_counted_sample(cluster):
    cluster.run(0)
    summary = cluster.run(1, OWN)
    assert (summary.counting, summary.pairs_fired, summary.bundles_taken) == ("too_soon", 0, 0)
    # Half an interval later the sample is the same one.
    summary = cluster.run(40, OWN)
    assert (summary.counting, summary.pairs_fired, summary.bundles_taken) == ("other_thresholds", 0, 0)
    assert summary.reasons[Reason.TOO_SOON] == 2
    assert cluster.low_hits == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("params", "settings", "after"),
    [
        (OWN, {"max_bundles_per_run": 1}, [0, 7, 7, 0]),  # the inner pair moves nothing
        (OWN, {}, [0, 0, 0, 0]),
        (FORCE, {}, [0, 0, 0, 0]),
    ],
)
def test_only_a_pair_that_is_carried_out_starts_anew(spark, tmp_path, params, settings, after):
    """What-if runs and forced runs change no other counter."""
    content = runs.tables("east", 4, 20)
    names: list[Any] = content["brokers"]["broker"].to_pylist()
    counted = runs.NOW - timedelta(seconds=60)
    state = DecisionState(
        seq=7, counted_at=counted, strategy="AvgShedder", hits=dict.fromkeys(names, HitCount(0, 7)), means=""
    )
    changed = params.model_dump(exclude_none=True, include=set(THRESHOLD_FIELDS))
    given = PATIENT | {"mode": "auto"} | settings | changed
    run = runs.make(tmp_path, content, state=state, params=params, **given)
    summary = decide_run(lambda: spark, RunInput.read(run.uri))
    left = plan.read_plan_state(run)
    assert summary.pairs_fired == 2
    assert left.hits == state.hits
    done = left.with_hits_reset().hits
    assert [done.get(name, HitCount()).low for name in names] == after
    assert (left.counted_at, left.means) == (counted, "")


def test_means_that_a_recorded_plan_names_are_not_written_again(cluster, spark, tmp_path):
    summary = cluster.run(0)
    means = tmp_path / "east" / "state" / cluster.state.means
    files = {file.name: file.stat().st_mtime_ns for file in means.iterdir()}
    assert decide_run(lambda: spark, RunInput.read(cluster.folder.uri)) == summary
    assert {file.name: file.stat().st_mtime_ns for file in means.iterdir()} == files
    # Another verdict on the sample is another table.
    (refused,) = cluster.content["bundles"]["bundle"].to_pylist()[:1]
    Validation(findings=(Finding(reason=Reason.TWO_OWNERS, subject=refused),)).write(cluster.folder)
    decide_run(lambda: spark, RunInput.read(cluster.folder.uri))
    other = plan.read_plan_state(cluster.folder).means
    assert other != means.name
    assert refused not in pa.parquet.read_table(means.with_name(other))["bundle"].to_pylist()
    assert {file.name: file.stat().st_mtime_ns for file in means.iterdir()} == files
