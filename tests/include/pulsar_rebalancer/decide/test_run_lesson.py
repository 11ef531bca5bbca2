"""What the bundles of a broker add up to: each bundle once, with what was known of it before the sample."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_plan import RunLearning, learn_from_run
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.tables import BUNDLE_COSTS, COSTS, RATES, TRAFFIC
from pulsar_rebalancer.state import (
    BundleSplit,
    DecisionState,
    LearnedBroker,
    LearnedValues,
    MovesState,
    ShedderState,
    StrategyState,
    Unload,
)
from pulsar_rebalancer.strategies.learning import BundleSums, sample_weights

RATE = {name: 100.0 * (number + 1) for number, name in enumerate("abcdefgh")}
"""In and out, each, of the bundles `t/n/<name>` with these names."""

KNOWN = {name: (90.0 + number, 95.0, 80.0, 85.0, 1.5, 0.125, 30.0) for number, name in enumerate("abcd")}
"""Costs (`run.tables.COSTS`) of bundles that were there before."""

SPLIT, HALVES = "t/n/0x00000000_0x40000000", ("t/n/0x00000000_0x20000000", "t/n/0x20000000_0x40000000")


def reported(broker: str, bundle: str, rate: float | None, owners: int = 1, cluster: str = "east") -> dict[str, Any]:
    return {"cluster": cluster, "broker": broker, "bundle": bundle, "owners": owners} | dict.fromkeys(TRAFFIC, rate)


def known(bundle: str, costs: tuple[float, ...]) -> dict[str, Any]:
    return {"bundle": bundle, **dict(zip(COSTS, costs, strict=True))}


def given(root, bundles, costs, before, counted_at=None, silent=0, **more):
    """A run; the first brokers, `silent` in number, have no report."""
    content = runs.tables("east", 3, 1)
    rows = content["brokers"].to_pylist()
    for row in rows[:silent]:
        row["error"] = Reason.REPORT_MISSING
    content["brokers"] = pa.Table.from_pylist(rows, schema=content["brokers"].schema)
    content["bundles"] = pa.Table.from_pylist(bundles, schema=content["bundles"].schema)
    kept = StrategyState(ShedderState(learned=before)).document()
    state = DecisionState(
        means="means-1-before.parquet", strategy="GainShedder", strategy_state=kept, counted_at=counted_at
    )
    run = RunInput.read(runs.make(root, content, state=state, strategy="GainShedder", **more).uri)
    (run.state_folder / state.costs_file).write_table(pa.Table.from_pylist(costs, schema=BUNDLE_COSTS))
    return run


def expected(rate: float, costs: tuple[float, ...] | None = None) -> BundleSums:
    """A bundle's share of its broker's sums."""
    averages = dict(zip(RATES, costs or (rate,) * len(RATES), strict=False))
    cost, variance, samples = costs[len(RATES) :] if costs else (1.0, 0.25, 0.0)
    change = rate - averages["quarter_rate"]
    sizes = dict(zip(RATES, sample_weights(np.array(samples + 1), 1.0), strict=True))
    hour, quick = (averages[name] + sizes[name] * (rate - averages[name]) for name in ("hour_rate", "quick_rate"))
    before = averages["hour_before"] + sizes["hour_before"] * (hour - averages["hour_before"])
    persisting = cost**2 * (rate - before) * (averages["quarter_rate"] - before), cost**2 * (quick - hour) ** 2
    of_sample = cost * rate, cost * change, variance * change**2, cost * quick, cost * hour
    return BundleSums(*(float(value) for value in (*of_sample, *persisting)))


def added(*sums: BundleSums) -> Any:
    return pytest.approx(tuple(map(sum, zip(*sums, strict=True))), rel=1e-6)


def test_bundles_count_once_with_their_known_costs(tmp_path):
    bundles = [
        *(reported("b1", f"t/n/{name}", RATE[name]) for name in "ae"),
        # While b moves, two brokers report it: it counts at the first of them, with the larger values.
        reported("b2", "t/n/b", RATE["b"], owners=2),
        reported("b1", "t/n/b", RATE["b"] / 2, owners=2),
        # Validation refused c and f: only what was known before counts.
        *(reported("b2", f"t/n/{name}", float("nan")) for name in "cf"),
        reported("b2", "t/n/d", None),
        # Parts of a split bundle; the second one has means of its own.
        *(reported("b3", half, 50.0) for half in HALVES),
        reported("b3", "t/n/a", 7.0, cluster="west"),
    ]
    costs = [known(f"t/n/{name}", values) for name, values in KNOWN.items()]
    costs += [known(SPLIT, (200.0, 300.0, 400.0, 100.0, 2.0, 0.0625, 30.0)), known(HALVES[1], KNOWN["a"])]
    findings = tuple(Finding(reason=Reason.BAD_VALUE, subject=f"t/n/{name}") for name in "cf")
    split = BundleSplit(at=runs.NOW, plan_id="p", positions=(0x20000000,), shares=(0.25, 0.75))
    # It had moved to b3, where its parts are now.
    moved = Unload(at=runs.NOW, plan_id="p", source="b1", destination="b3", outcome=Reason.MOVED)
    moves = MovesState(splits={SPLIT: split}, unloads={SPLIT: moved})
    more: dict[str, Any] = {"validation": Validation(findings=findings), "moves": moves}
    before = LearnedValues(samples=30, points=0.01)
    run = given(tmp_path, bundles, costs, before, **more)
    found = learn_from_run(run)
    sums, of = found.learning_result.sums, expected
    hour, quick, *_, cost, _, _ = KNOWN["c"]
    assert set(sums) == {"b1", "b2", "b3"}
    assert sums["b1"] == added(of(200, KNOWN["a"]), of(1000), of(400, KNOWN["b"]))
    assert sums["b2"] == added(BundleSums(cost * quick, 0.0, 0.0, cost * quick, cost * hour), of(0, KNOWN["d"]))
    assert sums["b3"] == added(of(100, (50.0, 75.0, 100.0, 25.0, 2.0, 0.0625, 30.0)), of(100, KNOWN["a"]))

    # The next run goes on from the same values, of each bundle once.
    after = {row["bundle"]: [row[name] for name in COSTS] for row in found.bundle_costs.to_pylist()}
    assert set(after) == {*(f"t/n/{name}" for name in "abcde"), *HALVES}
    of_a = [*zip(KNOWN["a"], sample_weights(np.array(31.0), 1.0), strict=False)]
    assert after["t/n/a"][:3] == pytest.approx([rate + step * (200 - rate) for rate, step in of_a[:3]])
    assert after["t/n/a"][3:5] == pytest.approx([85 + of_a[3][1] * (after["t/n/a"][0] - 85), 1.5])
    assert (after["t/n/a"][-1], after["t/n/c"][-1]) == (31, 30)
    assert after["t/n/e"] == [1000, 1000, 1000, 1000, 1, 0.25, 1]
    assert after["t/n/c"][:5] == list(KNOWN["c"][:5])
    found.write_costs(run)
    assert run.new_costs_file.read_table() == found.bundle_costs

    # Costs of another bottleneck mean nothing.
    fresh = learn_from_run(given(tmp_path / "fresh", bundles, costs, LearnedValues(), **more)).learning_result.sums
    assert fresh["b1"] == added(of(200), of(1000), of(400))
    assert fresh["b2"] == added(of(0))
    # Nothing is known without the file, not even what was learned about the cluster.
    (run.state_folder / "costs-1-before.parquet").delete()
    lost = RunInput.read(run.folder.uri)
    assert lost.learned_values is not None
    assert (lost.learned_values.samples, lost.learned_values.points) == (0, 0.0)
    assert learn_from_run(lost).learning_result.sums == {
        "b1": added(of(200), of(1000), of(400)),
        "b2": added(of(0)),
        "b3": added(of(100), of(100)),
    }


def test_a_strategy_that_does_not_learn_reads_nothing(tmp_path):
    run = given(tmp_path, [], [], LearnedValues())
    usual = replace(run, folder=runs.make(tmp_path, runs.tables("east", 3, 1)))
    (usual.folder / "input" / "bundles.parquet").delete()
    assert learn_from_run(usual) == RunLearning()


def test_costs_of_a_silent_broker_last_until_the_next_complete_sample(tmp_path):
    costs = [known(f"t/n/{name}", values) for name, values in KNOWN.items()]
    broker = "broker-00000.pulsar:8080"
    before = LearnedValues(samples=30, points=0.01, brokers={broker: LearnedBroker(30, residual=7.0)})
    for silent, kept in ((1, "abcd"), (0, "ab")):
        run = given(tmp_path, [reported("b2", f"t/n/{name}", 100.0) for name in "ab"], costs, before, silent=silent)
        found = learn_from_run(run)
        rows = {row.pop("bundle"): row for row in found.bundle_costs.to_pylist()}
        assert list(rows) == [f"t/n/{name}" for name in kept]
        assert all(tuple(rows[f"t/n/{name}"].values()) == KNOWN[name] for name in kept[2:])
        assert set(found.learning_result.sums) == {"b2"}
        assert (found.learning_result.learned.brokers[broker].residual == 7.0) is bool(silent)


@pytest.mark.parametrize(
    ("source", "destination", "reporting", "counts_at"),
    [
        ("b1", "b2", ["b1"], "b2"),
        ("b1", "b2", ["b2"], "b2"),
        ("b1", "b2", ["b1", "b2"], "b2"),
        ("b2", "b1", ["b1", "b2"], "b1"),
        ("b1", "b2", [], "b2"),
        # It has moved again.
        ("b1", "b2", ["b3"], "b3"),
    ],
)
def test_a_bundle_that_moved_counts_once_and_at_its_destination(tmp_path, source, destination, reporting, counts_at):
    bundles = [reported(broker, "t/n/a", RATE["a"], len(reporting)) for broker in reporting]
    bundles.append(reported("b1", "t/n/b", RATE["b"]))
    costs = [known(f"t/n/{name}", KNOWN[name]) for name in "ab"]
    before = LearnedValues(samples=30, points=0.01)
    # Validation refuses a bundle that two brokers report.
    findings = tuple(Finding(reason=Reason.TWO_OWNERS, subject="t/n/a") for _ in reporting[1:])
    for minutes in (3, 5):
        at = runs.NOW - timedelta(minutes=minutes)
        ends: dict[str, Any] = {"plan_id": "p", "source": source, "destination": destination}
        moves = MovesState(unloads={"t/n/a": Unload(at=at, **ends, outcome=Reason.MOVED)})
        run = given(tmp_path, bundles, costs, before, moves=moves, validation=Validation(findings=findings))
        found = learn_from_run(run)
        after = {row.pop("bundle"): tuple(row.values()) for row in found.bundle_costs.to_pylist()}
        hour, quick, *_, cost, _, _ = KNOWN["a"]
        unseen = BundleSums(cost * quick, 0.0, 0.0, cost * quick, cost * hour)
        is_seen = len(reporting) == 1
        load = expected(200, KNOWN["a"]) if is_seen else unseen
        # Later, it counts where it is reported.
        holds = counts_at if minutes < 4 else min(reporting, default=None)
        loads = {"b1": [expected(400, KNOWN["b"])]}
        if holds:
            loads.setdefault(holds, []).append(load)
        assert found.learning_result.sums == {broker: added(*of) for broker, of in loads.items()}
        assert ("t/n/a" in after) is bool(holds)
        assert is_seen or after.get("t/n/a", KNOWN["a"]) == pytest.approx(KNOWN["a"], rel=1e-4)


def test_bundles_with_low_rates_teach_as_in_a_replay(tmp_path):
    names = [f"t/n/{number}" for number in range(100)]
    costs = [known(name, (*KNOWN["a"][:2], 10.0, 10.0, 1.0, 0.25, 30.0)) for name in names]
    bundles = [reported("b1", name, 5.5) for name in names]
    busy = reported("b2", "t/n/busy", 1e5)
    for others in ([], [busy]):
        sums = learn_from_run(given(tmp_path, [*bundles, *others], costs, LearnedValues(30, 0.5))).learning_result.sums
        assert sums["b1"].doubt_sum == pytest.approx(100 * 0.25 * 1.0**2)


def test_a_new_bundle_starts_with_the_mean_of_its_own_samples(tmp_path):
    costs = [known("t/n/a", (300.0, 300.0, 300.0, 300.0, 1.0, 0.25, 1.0))]
    run = given(tmp_path, [reported("b1", "t/n/a", 50.0)], costs, LearnedValues(samples=1000, points=0.01))
    (after,) = learn_from_run(run).bundle_costs.to_pylist()
    assert [after[name] for name in (*RATES, "samples")] == [200, 200, 200, 250, 2]
