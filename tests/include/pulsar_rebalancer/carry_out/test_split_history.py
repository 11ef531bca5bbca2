from datetime import UTC, datetime, timedelta

import pytest

from pulsar_rebalancer.carry_out.split_executor import SplitHistory, splits_to_keep
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Split, SplitOutcome, outcome_by_split
from pulsar_rebalancer.state import BundleSplit, MovesState, Unload
from pulsar_rebalancer.storage.path import StoragePath

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ONE, OTHER = "a/b/0x00000000_0x80000000", "a/b/0x80000000_0xffffffff"
UNLOADED = Unload(at=NOW, plan_id="p0", source="b:1", destination="b:2")


class Store:
    def __init__(self):
        self.state = MovesState(unloads={"x/y/z": UNLOADED})

    def change(self, change):
        self.state = change(self.state)


def split(bundle=ONE, position=0x40000000):
    found = {"bundle": bundle, "broker": "b:1", "algorithm": "range_equally_divide", "shares": (0.25, 0.75)}
    return Split(**found, positions=(position,))


def ended(reason, bundle=ONE, attempts=1):
    return SplitOutcome(bundle=bundle, positions=(0x40000000,), reason=reason, attempts=attempts)


def record(**changes):
    found = {"at": NOW, "plan_id": "p1", "positions": (0x40000000,), "shares": (0.25, 0.75), "outcome": "split"}
    return BundleSplit(**found | changes)


@pytest.fixture
def run(tmp_path):
    return StoragePath(str(tmp_path / "p1"))


@pytest.mark.parametrize(
    ("later", "merged"),
    [
        ({"reason": "timeout", "attempts": 0, "error": "no answer"}, ("timeout", 1)),  # it may be split
        ({"reason": "range_gone", "attempts": 0}, ("range_gone", 1)),
        ({"reason": "split_elsewhere", "attempts": 0, "found": (7,)}, ("split_elsewhere", 1)),
        ({"reason": "split", "attempts": 0, "found": (0x40000000,)}, ("split", 1)),
        ({"reason": "namespace_full", "attempts": 0}, ("namespace_full", 0)),  # it was seen whole
        ({"reason": "split", "attempts": 1, "found": (0x40000000,)}, ("split", 1)),
        ({"reason": "stopped", "attempts": 0}, ("interrupted", 1)),
    ],
)
def test_split_of_a_killed_attempt_is_settled_by_the_next(run, later, merged):
    store = Store()
    killed = SplitHistory(store.state, store.change, run)
    killed.record_planned_splits([split()], NOW)
    killed.record_begin(split())
    again = SplitHistory(store.state, store.change, run)
    again.record_planned_splits([split()], NOW)
    again.add_outcome(SplitOutcome(bundle=ONE, positions=(0x40000000,), **later), NOW)

    (outcome,) = outcome_by_split(run).values()
    assert (outcome.reason, outcome.attempts) == merged
    assert store.state.splits[ONE].outcome == merged[0]


def test_a_retry_goes_on_with_what_was_planned(run):
    store, both = Store(), [split(), split(OTHER, 0xC0000000)]
    history = SplitHistory(store.state, store.change, run)
    assert (history.planned, history.remaining_splits(both)) == (False, both)
    history.record_planned_splits(both, NOW)
    history.add_outcome(ended("split"), NOW)

    again = SplitHistory(store.state, store.change, run)
    assert (again.planned, again.remaining_splits(both)) == (True, both[1:])
    again.add_outcome(ended("server_error", OTHER), NOW)
    assert again.remaining_splits(both) == both[1:]  # another attempt may complete it
    SplitHistory(store.state, store.change, run).add_outcome(ended("split", OTHER), NOW)
    assert [outcome.attempts for outcome in outcome_by_split(run).values()] == [1, 2]
    assert {name: known.outcome for name, known in store.state.splits.items()} == {ONE: "split", OTHER: "split"}
    assert store.state.unloads == {"x/y/z": UNLOADED}


@pytest.mark.parametrize(
    ("reason", "attempts", "before", "kept"),
    [
        ("split", 1, "split", "split"),
        ("split", 0, "split", "split"),
        ("not_split", 1, "not_split", "not_split"),  # tried in vain: protected as well
        ("interrupted", 0, "", "interrupted"),
        ("range_gone", 0, "range_gone", None),
        ("namespace_full", 0, "namespace_full", None),
        ("unreachable", 0, "unreachable", None),
    ],
)
def test_skipped_split_does_not_count(reason, attempts, before, kept):
    outcome = Outcome(
        plan_id="p1",
        cluster="c",
        airflow_run_id="r",
        ended_at=NOW,
        verdict="open",
        splits=(ended(reason, attempts=attempts),),
    )
    after = splits_to_keep({ONE: record(outcome=before)}, outcome, NOW)
    assert [known.outcome for known in after.values()] == ([] if kept is None else [kept])


@pytest.mark.parametrize(
    ("counted", "kept"),
    [(timedelta(hours=-5), True), (timedelta(hours=-4), False), (timedelta(0), False), (None, False)],
)
def test_a_record_waits_for_the_sample_with_which_its_parts_take_means_over(counted, kept):
    outcome = Outcome(plan_id="p9", cluster="c", airflow_run_id="r", ended_at=NOW, verdict="open")
    split = {ONE: record(at=NOW - timedelta(hours=4))}
    assert bool(splits_to_keep(split, outcome, NOW, None if counted is None else NOW + counted)) is kept
