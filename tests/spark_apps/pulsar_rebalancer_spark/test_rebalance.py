"""The application: a run's folder in, a plan out, the same whatever Spark does and however often it is asked."""

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pyarrow as pa
import pytest
from tests.spark_apps.pulsar_rebalancer_spark import runs
from tests.vectors.rows import decided as decided_of
from tests.vectors.rows import decision_of

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.tables import BUNDLES
from pulsar_rebalancer.state import DecisionState, HitCount, MovesState, Unload
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.shedders.registry import force_threshold
from pulsar_rebalancer_spark import application, rebalance
from pulsar_rebalancer_spark.rebalance import decide_run

ROOT = Path(__file__).parents[3]
EAGER: dict[str, Any] = {"hit_count_low": 1, "hit_count_high": 1}
UNDER_POLICIES = (
    *(("vip/a", "isolation"), ("lost/a", "unknown")),
    *(("spread/a", "anti_affinity"), ("spread/b", "anti_affinity"), ("spread/b", "anti_affinity")),
)
"""Namespaces of the busiest broker's last bundles."""


def decided(spark, root, run):
    return decide_run(lambda: spark, RunInput.read(run.uri))


def specified(root, run, previous=()):
    """The plan that the pipeline makes of the rows of a run's folder."""
    given = RunInput.read(run.uri)
    brokers, bundles = runs.sample(given, previous)
    force = force_threshold(given.request)
    sample = ClusterSample(brokers, bundles, given.settings, counting=given.hit_rules, force_threshold=force)
    return decided_of(sample, given.state.decision.hits, given.policies)


def plan_of(run):
    decisions = (run / "plan" / "decisions.parquet").read_table().to_pylist()
    moves = (run / "plan" / "moves.parquet").read_table().to_pylist()
    decided = [decision_of(row) for row in decisions]
    decided.sort(key=lambda each: (each.pair is None, each.pair or 0, each.source))
    return decided, sorted((CandidateMove.from_row(row) for row in moves), key=lambda move: (move.pair, move.rank))


@pytest.fixture
def eventful(tmp_path):
    """A run in which brokers and bundles are left out for every reason there is."""
    content = runs.tables("east", 9, 30)
    brokers = content["brokers"].to_pylist()
    brokers[4] |= {"error": "timeout", "cpu_usage": None, "msg_rate_in": None}
    for reserved in brokers[6:8]:
        reserved["reserved_by"] = "vip"
    brokers[6] |= {"cpu_usage": 20.0, "msg_rate_in": 0.0}
    held = content["bundles"].to_pylist()
    # One of a group on each of the two brokers to which a policy isolates it.
    for number, namespace in ((6, "vip/b"), (7, "vip/c")):
        held[30 * number] |= {"bundle": f"{namespace}/0x00000000_0x40000000", "policy": "isolation"}
        held[30 * number] |= {"msg_rate_in": 100.0, "msg_rate_out": 100.0}
    for number, (namespace, policy) in enumerate(UNDER_POLICIES):
        held[-1 - number] |= {"bundle": f"{namespace}/0x0{number}000000_0x0{number + 1}000000", "policy": policy}
        held[-1 - number] |= dict.fromkeys(("msg_rate_in", "msg_rate_out"), 1250.0)
    held[-6]["bundle"] = "pulsar/system/0x00000000_0x40000000"
    held[-7]["bundle"] = "tenant/kept/0x00000000_0x40000000"
    shared, recent, long_ago = (row["bundle"] for row in held[-10:-7])
    stays = held[-11]["bundle"]
    held[-10]["owners"] = 2
    held.append({**held[-10], "broker": brokers[0]["broker"]})
    content |= {
        "brokers": pa.Table.from_pylist(brokers, schema=content["brokers"].schema),
        "bundles": pa.Table.from_pylist(held, schema=BUNDLES),
    }
    unload = Unload(at=runs.NOW - timedelta(minutes=5), plan_id="earlier", source="x", destination="y")
    old = unload.model_copy(update={"at": runs.NOW - timedelta(minutes=31)})
    return runs.make(
        tmp_path,
        content,
        state=DecisionState(seq=6, hits={brokers[1]["broker"]: HitCount(0, 3), "gone:8080": HitCount(1, 1)}),
        moves=MovesState(unloads={recent: unload, long_ago: old}),
        policies=Policies(
            isolation=(IsolationPolicy(name="vip", namespaces=("vip/.*",), primary=("broker-0000[67].*",)),),
            groups={"spread/a": "g", "spread/b": "g", "vip/b": "h", "vip/c": "h"},
            unknown={"lost/a": "timeout"},
        ),
        validation=Validation(
            findings=(
                Finding(reason="just_started", subject=brokers[1]["broker"]),
                Finding(reason="two_owners", subject=shared),
            )
        ),
        excluded_namespaces=("tenant/kept",),
        excluded_bundles=("none/*", f"?{stays[1:]}"),
        excluded_brokers=(brokers[2]["broker"],),
        max_bundles_per_broker=4,
        **EAGER,
    )


def test_the_plan_is_the_one_that_rows_give(spark, tmp_path, eventful, monkeypatch):
    # No executor is asked for Python.
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python/on/executors")
    summary = decided(spark, tmp_path, eventful)
    decisions, moves = plan_of(eventful)
    expected = specified(tmp_path, eventful)
    assert decisions == expected.decisions
    assert moves == expected.moves
    isolated = next(row for row in moves if row.bundle.startswith("vip/c"))
    assert (isolated.source, isolated.reason) == ("broker-00007.pulsar:8080", "anti_affinity")
    assert {row.reason for row in moves} >= {
        *("taken", "over_remaining", "cap_broker", "system_namespace", "bundle_excluded"),
        *("bundle_quarantined", "recently_unloaded", "policy_unknown", "policy_forbids", "anti_affinity"),
    }
    assert [row.reason for row in decisions if row.pair is None] == [
        "broker_quarantined",
        "broker_excluded",
        "broker_quarantined",
    ]
    assert summary.brokers == 6
    assert summary.bundles_taken == len([row for row in moves if row.is_taken])
    assert sum(summary.bundle_skip_reasons.values()) + summary.bundles_taken == len(moves)


def test_the_summary_vouches_for_the_files(spark, tmp_path, eventful):
    summary = decided(spark, tmp_path, eventful)
    assert plan.Summary.read(eventful) == summary
    moves = plan.verified_actions(eventful, summary).moves
    assert len(moves) == summary.bundles_taken > 0
    assert max(move.wave for move in moves) + 1 == summary.waves
    state = plan.read_plan_state(eventful)
    assert (state.seq, state.plan_id, summary.base_seq) == (7, eventful.name, 6)
    assert state.counted_at == runs.NOW
    # The counts of a quarantined broker freeze, those of a broker that is gone end.
    assert state.hits["broker-00001.pulsar:8080"] == HitCount(0, 3)
    assert "gone:8080" not in state.hits
    assert summary.score_min < summary.predicted_min < summary.predicted_max < summary.score_max


def test_the_plan_does_not_depend_on_order_partitions_or_retries(spark, tmp_path, eventful, monkeypatch):
    first = decided(spark, tmp_path, eventful)
    runs.shuffle(eventful)
    monkeypatch.setattr(rebalance, "BUNDLES_PER_TASK", 50)
    assert decided(spark, tmp_path, eventful) == first


def test_means_outlast_a_sample_without_a_report(spark, tmp_path):
    """One broker has no report, two report the same bundle, and validation refuses another."""
    content = runs.tables("east", 4, 5)
    rows, brokers = content["bundles"].to_pylist(), content["brokers"].to_pylist()
    silent = brokers[0]["broker"]
    brokers[0] |= {"error": "timeout", "cpu_usage": None}
    left = [row for row in rows if row["broker"] != silent]
    left[0]["owners"], gone = 2, left.pop()
    left.append({**left[0], "broker": brokers[3]["broker"]})
    missed = content | {
        "brokers": pa.Table.from_pylist(brokers, schema=content["brokers"].schema),
        "bundles": pa.Table.from_pylist(left, schema=BUNDLES),
    }
    refused = Validation(findings=(Finding(reason="two_owners", subject=left[1]["bundle"]),))
    state, stored = DecisionState(), list[dict[str, Any]]()
    for number, (tables, validation) in enumerate([(content, None), (missed, refused), (content, None)]):
        at = runs.NOW + timedelta(seconds=60 * number)
        run = runs.make(tmp_path, tables, state=state, at=at, validation=validation, **EAGER)
        decided(spark, tmp_path, run)
        state = plan.read_plan_state(run)
        means_of = pa.parquet.read_table(tmp_path / "east" / "state" / state.means).to_pylist()
        stored.append({row["bundle"]: row for row in means_of})
    first, second, third = stored
    assert first.keys() == second.keys() == third.keys()
    still = {row["bundle"] for row in rows if row["broker"] == silent} | {gone["bundle"], left[1]["bundle"]}
    assert {name for name, row in second.items() if row == first[name]} == still
    assert {name: row["samples"] for name, row in third.items()} == {name: 3 - (name in still) for name in third}
    # Once every broker reports, a bundle that no broker reports is forgotten.
    fewer = content | {"bundles": pa.Table.from_pylist(rows[1:], schema=BUNDLES)}
    run = runs.make(tmp_path, fewer, state=state, at=runs.NOW + timedelta(seconds=180), **EAGER)
    decided(spark, tmp_path, run)
    names = pa.parquet.read_table(tmp_path / "east" / "state" / plan.read_plan_state(run).means)["bundle"].to_pylist()
    assert len(names) == len(rows) - 1
    assert set(names) == {row["bundle"] for row in rows[1:]}


@pytest.mark.parametrize(
    ("content", "said"), [(None, "does not exist, or is not a file"), (b"PAR1 cut short", "cannot be read")]
)
def test_means_that_are_gone_or_damaged_start_anew_and_say_so(spark, tmp_path, caplog, content, said):
    state = DecisionState(seq=2, means="means-2-0badf00d.parquet")
    run = runs.make(tmp_path, runs.tables("east", 3, 3), state=state)
    if content:
        (RunInput.read(run.uri).state_folder / state.means).write_bytes(content)
    decided(spark, tmp_path, run)
    (warning,) = [line for line in caplog.messages if state.means in line]
    assert said in warning
    stored = tmp_path / "east" / "state" / plan.read_plan_state(run).means
    assert set(pa.parquet.read_table(stored)["samples"].to_pylist()) == {1}


@pytest.mark.parametrize("raised", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_unforeseen_error_has_a_reason_code(tmp_path, capsys, raised):
    run = runs.make(tmp_path, runs.tables("east", 3, 3))
    spark = Mock(result=Mock(side_effect=raised))
    assert rebalance.main(["--root", str(tmp_path), "--run", run.uri], spark) == 1
    assert f"not decided: {run.uri}: {raised.__name__} [spark_failed]" in capsys.readouterr().err


def test_a_run_that_cannot_be_decided_has_a_reason_and_no_plan(tmp_path, capsys):
    run = runs.make(tmp_path, runs.tables("south", 3, 3), cluster="south")
    (run / "validation.json").delete()
    assert rebalance.main(["--root", str(tmp_path), "--run", run.uri], Mock()) == 1
    assert re.search(rf"not decided: {run.uri}: .*\[file_missing\]", capsys.readouterr().err)
    assert not (run / "plan" / "summary.json").exists()


class TestDamagedInput:
    @pytest.fixture
    def run(self, tmp_path):
        return runs.make(tmp_path, runs.tables("east", 3, 3))

    def read(self, tmp_path, run):
        with pytest.raises(SnapshotError) as caught:
            RunInput.read(run.uri)
        return caught.value.reason

    def test_a_table_cut_short(self, tmp_path, run):
        file = run / "input" / "brokers.parquet"
        file.write_bytes(file.read_bytes()[:-20])
        assert self.read(tmp_path, run) == "file_damaged"


def submit(errors, root, run):
    """The application through spark-submit, as the DAG calls it, on a standalone cluster of two workers.

    Each has an executor in a process of its own, without any Python.
    """
    paths = os.pathsep.join(str(ROOT / name) for name in ("include", "spark_apps"))
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = ["--master", "local-cluster[2,1,1024]", "--driver-memory", "1g", "--executor-memory", "1g"]
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Tasks are given out once both are there: the means of small runs would be ready with one.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": "/no/python/on/executors",
    }
    options += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return subprocess.Popen(
        ["spark-submit", *options, application.__file__, "--root", str(root), "--run", run.uri],
        env={**os.environ, "PATH": binaries, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=errors.open("w"),
        text=True,
    )


def kill_executors(application, errors):
    """Kills both of the application's executors once each has begun a task, and returns their numbers.

    The task begun last is still under way.
    """
    busy: set[str] = set()
    while len(busy) < 2:
        assert application.poll() is None, errors.read_text()[-2000:]
        busy = set(re.findall(r"Starting task \S+ in stage .*?,\s*executor (\d+)", errors.read_text()))
        time.sleep(0.01)
    killed = 0
    for each in psutil.Process(application.pid).children(recursive=True):
        with suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
                each.kill()
                killed += 1
    assert killed == 2
    return busy


@pytest.mark.integration
@pytest.mark.system
def test_a_plan_outlives_killed_executors_on_two_workers(spark, tmp_path):
    # Enough bundles for a task on each of them.
    run = runs.make(tmp_path, runs.tables("east", 6, 20_000), **EAGER)
    here = decided(spark, tmp_path, run)
    assert here.bundles_taken
    # What is there is not written again.
    RunInput.read(run.uri).new_means_file.delete()
    application = submit(tmp_path / "errors.log", tmp_path, run)
    killed = kill_executors(application, tmp_path / "errors.log")
    output, errors = application.communicate()[0], (tmp_path / "errors.log").read_text()
    assert application.returncode == 0, errors[-2000:]
    # What was under way is begun a second time.
    assert killed <= set(re.findall(r"Lost executor (\d+)", errors))
    assert re.search(r"Starting task \d+\.1 in stage", errors)
    assert plan.Summary.read(run) == here, errors[-2000:]
    assert f"{here.bundles_taken:,} bundles to move" in output
    assert f"plan {run.name} (hash {here.hash[:16]})" in output
