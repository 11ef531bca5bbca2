"""The placement that is remembered: when it is taken, what replaces it, and where the bundles of today belong."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.include.pulsar_rebalancer.decide.by_hand.snapshots import NOW, Snapshots, name

from pulsar_rebalancer.decide.remembered import RememberedPlacement, remember
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.policies.isolation import IsolationPolicy
from pulsar_rebalancer.state.manual_plans import Drain, Drains
from pulsar_rebalancer.state.state_documents import DecisionState, Remembered

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.run.snapshot import Snapshot

EVEN = {"a": {name(1): 30.0, name(2): 10.0}, "b": {name(3): 30.0}, "c": {name(4): 30.0}}


class Runs:
    """Runs of one cluster, one a minute, each with what the last one remembered.

    Args:
        long: each run is the tenth in a row if its scores are close together.
    """

    def __init__(self, folder: Path, *, long: bool = False) -> None:
        self.snapshots = Snapshots(folder, EVEN)
        self.snapshots.state = DecisionState(seq=7, counted_at=NOW)
        self.minutes, self.long = 0, long

    def run(self, owned: dict[str, dict[str, float]] = EVEN, **given: Any) -> Remembered:
        snapshots, before = self.snapshots, self.snapshots.state
        if self.long:
            before = before.model_copy(update={"placement": before.placement.model_copy(update={"balanced": 9})})
            snapshots.state = before
        snapshots.owned = {f"{broker}:1": dict(bundles) for broker, bundles in owned.items()}
        self.minutes += given.pop("minutes", 1)
        folder = snapshots.take(after=timedelta(minutes=self.minutes), **given)
        self.newest = RunInput.read(folder.uri)
        after = remember(self.newest)
        changed = {"seq": before.seq + 1, "placement": after, "counted_at": self.newest.request.collected_at}
        snapshots.state = before.model_copy(update=changed)
        return after

    def placement(self) -> RememberedPlacement | None:
        """The placement that the next run remembers."""
        snapshot: Snapshot = RunInput.read(self.snapshots.take().uri)
        return RememberedPlacement.read(snapshot)


def test_a_placement_is_remembered_once_scores_were_together_three_times_in_a_row(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert [runs.run().balanced for _ in range(2)] == [1, 2]
    assert runs.placement() is None

    after = runs.run()

    assert (after.balanced, after.at) == (3, NOW + timedelta(minutes=3))
    placement = runs.placement()
    assert placement is not None
    home = {name(1): "a:1", name(2): "a:1", name(3): "b:1", name(4): "c:1"}
    assert placement.homes(pa.array(home)) == home
    assert placement.shares == pytest.approx({"a:1": 0.4, "b:1": 0.3, "c:1": 0.3})
    assert remember(runs.newest) == after, "a run that is repeated writes the same file"


def test_it_is_renewed_with_every_tenth_sample(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    files = [runs.run().file for _ in range(21)]
    changes = [number for number, (before, after) in enumerate(pairwise(["", *files]), 1) if before != after]
    assert changes == [3, 10, 20]


@pytest.mark.parametrize(
    ("owned", "given"),
    [
        (EVEN | {"c": {name(4): 25.0}}, {}),  # 15 points
        ({broker: {name(number): 14.0} for number, broker in enumerate("abc")}, {}),  # nobody is above 15
        (EVEN, {"params": {"force": "now"}}),
    ],
    ids=["apart", "all cold", "not counted"],
)
def test_other_samples_are_no_reason_to_remember(tmp_path: Path, owned: Any, given: dict[str, Any]) -> None:
    runs = Runs(tmp_path)
    runs.run()
    other = runs.run(owned, **given)
    assert (other.balanced, other.file) == ("params" in given, "")
    assert runs.run().balanced == 1 + ("params" in given)


def test_samples_that_are_far_apart_are_not_in_a_row(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert [runs.run().balanced, runs.run(minutes=3).balanced, runs.run(minutes=4).balanced] == [1, 2, 1]


def test_scores_are_compared_within_the_pools_of_isolation_policies(tmp_path: Path) -> None:
    runs = Runs(tmp_path, long=True)
    runs.snapshots.policies = Policies(isolation=(IsolationPolicy(name="p", namespaces=("t/n",), primary=("c",)),))
    assert runs.run(EVEN | {"c": {name(4): 80.0}}).file
    assert runs.run(EVEN | {"b": {name(4): 80.0}}).balanced == 0


def test_while_a_broker_is_away_or_drained_its_placement_is_kept_for_a_day(tmp_path: Path) -> None:
    runs = Runs(tmp_path, long=True)
    known = runs.run().file
    two: Any = {"a": {name(1): 30.0, name(2): 10.0}, "b": {name(3): 30.0, name(4): 10.0}}
    drains = Drains(brokers={"c:1": Drain(at=NOW, by="ada", reason="disks")}).model_dump(mode="json")

    assert runs.run(two).file == known
    assert runs.run(drains=drains).file == known
    runs.snapshots.settings = runs.snapshots.settings.model_copy(update={"state_max_gap": 10_000})
    assert runs.run(two, minutes=24 * 60 - 2).file == known
    later = runs.run(two)
    assert later.file != known
    assert runs.run(EVEN | {"d": {name(9): 30.0}}).file != later.file, "a broker that joins keeps nothing back"


def test_parts_of_a_bundle_belong_where_it_was(tmp_path: Path) -> None:
    whole, low, high = "t/n/0x10000000_0x20000000", "t/n/0x10000000_0x18000000", "t/n/0x18000000_0x20000000"
    known = {whole: "a:1", "t/n/0x00000000_0x10000000": "b:1", "t/o/0x20000000_0x30000000": "b:1"}
    others = ["t/n/0x18000000_0x21000000", "t/n/0x20000000_0x30000000", "t/other/0x10000000_0x20000000"]
    bundles = pa.array([whole, low, high, *others])
    for brokers in (None, ["a:1"], ["a:1", "d:1"]):
        assert placed(known).homes(bundles, brokers) == dict.fromkeys((whole, low, high), "a:1")
    assert placed(known).homes(bundles, ["b:1"]) == {}


def placed(known: dict[str, str]) -> RememberedPlacement:
    return RememberedPlacement(pa.table({"bundle": [*known], "broker": [*known.values()]}), {})


def test_a_large_placement_stays_a_table_except_for_the_brokers_in_question(tmp_path: Path) -> None:
    known = {name(number): "c:1" if number < 3 else "a:1" for number in range(100_000)}
    placement, runs = placed(known), Runs(tmp_path, long=True)
    file = runs.run().file
    traffic = pa.repeat(1.0, len(known))
    (runs.snapshots.storage.state / file).write_table(placement.bundles.append_column("msg_throughput", traffic))
    tracemalloc.start()

    assert placement.homes(pa.array(known), ["c:1"]) == dict.fromkeys(map(name, range(3)), "c:1")
    assert runs.run().file != file

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000, "a dictionary of its bundles is ten times as large"


def test_a_placement_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    runs = Runs(tmp_path, long=True)
    file = runs.snapshots.storage.state / runs.run().file
    file.write_bytes(b"PAR1 and then nothing")
    assert runs.placement() is None
    assert runs.run().file != file.name
    (runs.snapshots.storage.state / runs.snapshots.state.placement.file).delete()
    assert runs.placement() is None
