"""An approved plan that serves a drain is carried out with what is overruled for it, as without approval."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.include.pulsar_rebalancer.by_hand.snapshots import NOW, Snapshots, fates, name

from pulsar_rebalancer.by_hand.carry_out import carry_out_shown
from pulsar_rebalancer.by_hand.drains import serve
from pulsar_rebalancer.config.enums import Overrule
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.tables import MOVES, table
from pulsar_rebalancer.state.by_hand import Drain, Drains
from pulsar_rebalancer.strategies import plan_files, rows
from pulsar_rebalancer.strategies.sample import BundleSample, CandidateMove, Measure

if TYPE_CHECKING:
    from pathlib import Path

OWNED = {"a": {name(1): 20.0, name(2): 20.0}, "b": {name(4): 10.0, name(5): 5.0}, "c": {name(6): 10.0}}


def marks(*overruled: Overrule, broker: str = "a:1") -> Drains:
    return Drains(brokers={broker: Drain(at=NOW, by="ada", reason="new disks", overrule=overruled)})


def strategy(bundle: str) -> CandidateMove:
    """What the strategy wants beside the drain: a bundle of b that goes to c."""
    sample = BundleSample("b:1", bundle, msg_throughput=5.0)
    return CandidateMove.of(sample, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.TAKEN, destination="c:1")


def decided(snapshots: Snapshots, drains: Drains) -> Summary:
    """The plan of a run that serves drains, as it waits for approval."""
    run = snapshots.take(drains=drains.model_dump(mode="json"))
    served = serve(run, snapshots.storage.state, drains.brokers, [], [strategy(name(5))])
    candidates = table([rows.move_row("east", each) for each in served.moves], MOVES)
    (run / "plan" / "moves.parquet").write_table(candidates)
    going = [row for row in candidates.to_pylist() if row["taken"]]
    state = snapshots.state.model_copy(update={"seq": 8, "plan_id": run.name})
    summary = Summary(
        **plan_files.write(run, RunRequest.read(run), state, [], going, {}, []),
        **plan_files.scores({}, {}),
        drains=served.progress,
        counting=Reason.COUNTED,
        pairs=0,
        pairs_over=0,
        pairs_fired=0,
        hits=(0, 0),
    )
    summary.write(run)
    return summary


def approved(snapshots: Snapshots, shown: Summary, drains: Drains) -> dict[str, str]:
    """What becomes of each bundle of the plan in the run that carries it out."""
    handed = snapshots.handed_over(shown).model_copy(update={"approved": True, "reason": "it is night"})
    run = snapshots.take(
        after=timedelta(minutes=5),
        params={"plan": shown.hash},
        handed_over=handed.model_dump(mode="json"),
        drains=drains.model_dump(mode="json"),
    )
    summary = carry_out_shown(snapshots.storage, run)
    assert summary.sentence.startswith("approved by bob (it is night): ")
    return fates(run)


def recently_unloaded(snapshots: Snapshots) -> None:
    snapshots.unloaded = {bundle: timedelta(minutes=1) for bundle in (name(1), name(2))}


def excluded(snapshots: Snapshots) -> None:
    kept = {"excluded_bundles": (name(1), name(2))}
    snapshots.settings = snapshots.settings.model_copy(update=kept)


def hot(snapshots: Snapshots) -> None:
    snapshots.settings = snapshots.settings.model_copy(update={"overloaded_threshold": 19.0})


@pytest.mark.parametrize(
    ("prepare", "overrule", "reason"),
    [
        (recently_unloaded, Overrule.GRACE_PERIOD, "recently_unloaded"),
        (excluded, Overrule.EXCLUSIONS, "bundle_excluded"),
        (hot, Overrule.OVERLOAD, "would_overload"),
    ],
)
def test_what_is_overruled_for_a_drain_is_overruled_after_an_approval(
    tmp_path: Path, prepare: Any, overrule: Overrule, reason: str
) -> None:
    snapshots = Snapshots(tmp_path, OWNED)
    prepare(snapshots)
    shown = decided(snapshots, marks(overrule))
    assert shown.drains["a:1"].moving == 2

    found = approved(snapshots, shown, marks(overrule))
    assert {found[name(1)], found[name(2)]} == {"b:1", "c:1"}
    # Marked anew since, with nothing overruled: what holds now holds.
    found = approved(snapshots, shown, marks())
    assert reason in (found[name(1)], found[name(2)])


def test_what_leaves_a_broker_that_was_released_since_stays(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, OWNED)
    shown = decided(snapshots, marks())

    assert approved(snapshots, shown, Drains()) == {
        name(1): "not_drained",
        name(2): "not_drained",
        name(5): "c:1",
    }


def test_what_was_overruled_later_was_not_approved(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, OWNED)
    shown = decided(snapshots, marks())
    recently_unloaded(snapshots)

    found = approved(snapshots, shown, marks(Overrule.GRACE_PERIOD))

    assert (found[name(1)], found[name(2)]) == ("recently_unloaded", "recently_unloaded")


def test_a_bundle_goes_where_it_was_shown_or_nowhere(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, OWNED)
    shown = decided(snapshots, marks())
    before = fates(snapshots.storage.run(shown.plan_id))  # type: ignore[arg-type]
    snapshots.owned["b:1"][name(9)] = 60.0

    found = approved(snapshots, shown, marks())

    assert {found[bundle] for bundle in (name(1), name(2)) if before[bundle] == "b:1"} == {"would_overload"}
    assert {found[bundle] for bundle in (name(1), name(2)) if before[bundle] == "c:1"} == {"c:1"}
