"""The costs that the page shows are those of a broker's largest bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, name, planned

from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_lesson import lesson_of
from pulsar_rebalancer.show.page.bundle_costs import bundle_costs
from pulsar_rebalancer.strategies.kept import KeptState, ShedderState

if TYPE_CHECKING:
    from pathlib import Path


def test_of_25_bundles_the_20_with_the_largest_load_are_listed(tmp_path: Path) -> None:
    owned = {"a": {name(number): 1.0 + number for number in range(25)}, "b": {name(99): 50.0}}
    snapshots = Snapshots(tmp_path, owned, strategy="GainShedder")
    run = RunInput.read(snapshots.take().uri)
    learned = lesson_of(run)
    learned.write(run)
    kept = KeptState(ShedderState(learned=learned.lesson.learned))
    plan_files.write_run(run, planned(run, kept=kept))
    assert [cost.bundle for cost in bundle_costs(snapshots.storage, "a:1", NOW)] == [
        name(number) for number in range(24, 4, -1)
    ]
