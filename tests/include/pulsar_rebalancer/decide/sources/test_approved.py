from datetime import timedelta
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, fates, name, planned

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_plan import replan
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.reasons import Reason, reasons_text
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

OWNED = {"a": {name(1): 20.0, name(2): 20.0}, "b": {name(4): 10.0, name(5): 5.0}, "c": {name(6): 10.0}}


def marks(*overruled: Overrule, broker: str = "a:1") -> Drains:
    return Drains(brokers={broker: Drain(at=NOW, by="ada", reason="new disks", overrule=overruled)})


def strategy(bundle: str) -> CandidateMove:
    """What the strategy wants beside the drain: a bundle of b that goes to c."""
    sample = BundleSample("b:1", bundle, msg_throughput=5.0)
    return CandidateMove.new(sample, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.TAKEN, destination="c:1")


def decided(snapshots: Snapshots, drains: Drains) -> Summary:
    run = snapshots.take(drains=drains.model_dump(mode="json"))
    read = RunInput.read(run.uri)
    fired: Any = {"destination": "c:1", "source_score": 15.0, "destination_score": 10.0, "gap": 5.0, "fired": True}
    pair = Decision("b:1", Reason.FIRED, 0, **fired)
    return plan_files.write_run_plan(read, planned(read, [pair], [strategy(name(5))]))


def approved(snapshots: Snapshots, shown: Summary, drains: Drains) -> dict[str, str]:
    """What becomes of each bundle of the plan in the run that carries it out, five minutes later."""
    unloaded = snapshots.unloaded
    snapshots.unloaded = {bundle: age + timedelta(minutes=5) for bundle, age in unloaded.items()}
    handed = snapshots.handed_over(shown).model_copy(update={"approved": True, "reason": "it is night"})
    run = snapshots.take(
        after=timedelta(minutes=5),
        params={"plan": shown.hash},
        handed_over=handed.model_dump(mode="json"),
        drains=drains.model_dump(mode="json"),
    )
    snapshots.unloaded = unloaded
    summary = replan(snapshots.storage, run)
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
def test_overruling_of_a_drain_outlasts_an_approval(tmp_path, prepare, overrule, reason):
    snapshots = Snapshots(tmp_path, OWNED)
    prepare(snapshots)
    shown = decided(snapshots, marks(overrule))
    assert shown.drains["a:1"].moving == 2

    found = approved(snapshots, shown, marks(overrule))
    assert {found[name(1)], found[name(2)]} == {"b:1", "c:1"}
    # Marked anew since, with nothing overruled: what holds now holds.
    with pytest.raises(PlanError, match=rf"{reasons_text({Reason(reason): 2})}.*not_whole"):
        approved(snapshots, shown, marks())


def test_approved_drain_of_a_released_broker_moves_nothing(tmp_path):
    snapshots = Snapshots(tmp_path, OWNED)
    shown = decided(snapshots, marks())

    with pytest.raises(PlanError, match=r"2 bundles would stay .*not_drained") as refused:
        approved(snapshots, shown, Drains())

    assert refused.value.reason is Reason.NOT_WHOLE
    assert name(5) not in str(refused.value)


def test_a_bundle_goes_where_it_was_shown_or_nowhere(tmp_path):
    snapshots = Snapshots(tmp_path, OWNED)
    shown = decided(snapshots, marks())
    snapshots.owned["b:1"][name(9)] = 60.0

    with pytest.raises(PlanError, match=r"1 would overload a broker.*not_whole"):
        approved(snapshots, shown, marks())


def carrying_out(snapshots: Snapshots, shown: Summary, minutes: int) -> StoragePath:
    """The snapshot of an attempt at carrying out an approved plan, so many minutes later."""
    handed = snapshots.handed_over(shown).model_copy(update={"approved": True})
    return snapshots.take(
        after=timedelta(minutes=minutes),
        params={"plan": shown.hash},
        handed_over=handed.model_dump(mode="json"),
        drains=marks().model_dump(mode="json"),
    )


@pytest.mark.parametrize(("minutes", "refused"), [(60, False), (61, True)])
def test_a_plan_that_is_too_old_by_the_time_of_its_run_is_not_carried_out(tmp_path, minutes, refused):
    snapshots = Snapshots(tmp_path, OWNED)
    run = carrying_out(snapshots, decided(snapshots, marks()), minutes)

    if refused:
        with pytest.raises(PlanError, match=r"is 3660 s old.*plan_expired"):
            replan(snapshots.storage, run)
    else:
        assert replan(snapshots.storage, run).bundles_taken == 3
