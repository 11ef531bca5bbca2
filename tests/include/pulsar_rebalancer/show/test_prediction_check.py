"""Runs of a simulated cluster, minute by minute: what was predicted, and what is measured later."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.overview_scene import NOW, Scene, broker

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.comparison import ComparedRun
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.quarantine import predictions_off
from pulsar_rebalancer.run.request import Finding
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.show import prediction_check
from pulsar_rebalancer.show.page.page_plan import plan_view
from pulsar_rebalancer.show.page.recent_runs import read_run
from pulsar_rebalancer.show.prediction_check import check_predictions
from pulsar_rebalancer.state.predictions import FEWEST, KEPT, Predictions
from pulsar_rebalancer.state.state_documents import BundleSplit, MovesState, Unload

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.show.page.plan_view import EndView
    from pulsar_rebalancer.storage.path import StoragePath

HOT, COLD = [broker(number) for number in range(5)], [broker(number) for number in range(5, 10)]


class Cluster:
    """Five hot and five cold brokers, whose five pairs fire in the second run."""

    def __init__(self, root: Path, **settings: Any) -> None:
        loads = {name: 80.0 + at for at, name in enumerate(HOT)} | {name: 20.0 + at for at, name in enumerate(COLD)}
        self.scene = Scene(str(root), loads, each=20, **settings)
        self.scene.started = dict.fromkeys(loads, NOW - timedelta(days=1))
        self.history, self.minutes = MovesState(), 0
        self.moved = self.run(), self.run()
        self.plan = self.moved[1]

    def run(self, minutes: int = 1) -> StoragePath:
        """The next run, reported."""
        self.minutes += minutes
        folder = self.scene.run(NOW + timedelta(minutes=self.minutes))
        self.report(folder)
        return folder

    def report(self, folder: StoragePath) -> None:
        outcome = Outcome.read(folder)
        unloads = {
            move.bundle: Unload(
                at=outcome.ended_at,
                plan_id=folder.name,
                source=move.source,
                destination=move.destination,
                outcome=move.reason,
                owner=move.owner,
            )
            for move in outcome.moves
        }
        history = self.history.model_copy(update={"unloads": self.history.unloads | unloads})
        self.history = check_predictions(history, outcome, Snapshot(folder), self.scene.storage)

    def scale(self, factor: float, *brokers: str) -> None:
        for name in brokers:
            held = self.scene.owned[name]
            self.scene.owned[name] = {bundle: load * factor for bundle, load in held.items()}

    def shown(self) -> dict[str, EndView]:
        """The brokers of the plan as the page shows them."""
        view = plan_view(self.scene.storage, read_run(self.plan), NOW + timedelta(minutes=self.minutes))
        return {end.name: end for end in view.brokers} if view else {}

    @property
    def comparison(self) -> ComparedRun:
        return ComparedRun.read(self.plan)

    def reasons(self) -> set[Reason | None]:
        return {each.dropped for each in self.comparison.brokers.values()}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    assert made.comparison.awaited == {*HOT, *COLD}
    assert made.history.predictions == Predictions(awaited=(made.plan.name,))
    return made


def test_scores_that_follow_traffic_are_as_predicted(cluster: Cluster) -> None:
    for _ in range(10):
        cluster.run()
    assert cluster.comparison.compared_at is None, "nine minutes and 40 seconds after the moves"
    assert {end.measured for end in cluster.shown().values()} == {None}

    cluster.run()

    assert cluster.comparison.compared_at == NOW + timedelta(minutes=cluster.minutes)
    for name, each in cluster.comparison.brokers.items():
        assert each.measured is not None
        assert each.error is not None
        assert abs(each.error) < 3
        assert (each.measured < each.before - 20) is (name in HOT)
        shown = cluster.shown()[name]
        expected = each.before, each.predicted, each.measured, each.error
        assert (shown.before, shown.after, shown.measured, shown.error) == tuple(round(of, 2) for of in expected)
        assert shown.dropped == ""
    predictions = cluster.history.predictions
    assert (predictions.awaited, len(predictions.errors)) == ((), 10)
    assert predictions_off(predictions) == []


def test_a_load_that_shifts_after_the_moves_is_a_warning(cluster: Cluster) -> None:
    cluster.scale(1.25, *COLD)

    cluster.run(11)

    (finding,) = predictions_off(cluster.history.predictions)
    assert (finding.reason, finding.effect) == (Reason.PREDICTIONS_OFF, "warn")
    assert finding.detail.endswith("points of 10 comparisons")


@pytest.mark.parametrize("factor", [0.6, 1.4])
def test_what_changes_at_all_brokers_says_nothing_about_the_moves(cluster: Cluster, factor: float) -> None:
    cluster.scale(factor, *HOT, *COLD)

    cluster.run(11)

    assert len(cluster.history.predictions.errors) == 10
    assert predictions_off(cluster.history.predictions) == []


def test_moves_that_went_elsewhere_are_predicted_where_they_went(tmp_path: Path) -> None:
    made = Scene(str(tmp_path), {broker(0): 80.0, broker(1): 50.0, broker(2): 20.0})
    made.run(NOW)
    folder = made.run(NOW + timedelta(minutes=1))
    outcome = Outcome.read(folder)
    first, *others = outcome.moves
    gone = first.model_copy(update={"owner": broker(1), "reason": Reason.ASTRAY})
    lost = others[0].model_copy(update={"reason": Reason.NO_TOPIC, "attempts": 0})
    outcome = outcome.model_copy(update={"moves": (gone, lost)})

    check_predictions(MovesState(), outcome, Snapshot(folder), made.storage)

    found = ComparedRun.read(folder).brokers
    assert found.keys() == {broker(0), broker(1)}
    assert found[broker(1)].predicted - found[broker(1)].before == pytest.approx(8, abs=0.5)


def test_where_a_bundle_is_unknown_its_brokers_are_not_compared(tmp_path: Path) -> None:
    made = Scene(str(tmp_path), {broker(0): 80.0, broker(1): 20.0})
    made.run(NOW)
    folder = made.run(NOW + timedelta(minutes=1), astray=1)

    history = check_predictions(MovesState(), Outcome.read(folder), Snapshot(folder), made.storage)

    assert ComparedRun.known(folder) is None
    assert history.predictions == Predictions()


def test_brokers_that_move_bundles_again_are_not_compared(cluster: Cluster) -> None:
    later = Unload(at=NOW + timedelta(minutes=5), plan_id="later", source=HOT[0], destination=COLD[0], owner=COLD[1])
    cluster.history = cluster.history.model_copy(update={"unloads": cluster.history.unloads | {"b": later}})

    cluster.run(11)

    dropped = {name for name, each in cluster.comparison.brokers.items() if each.dropped is Reason.MOVED_AGAIN}
    assert dropped == {HOT[0], COLD[0], COLD[1]}
    assert len(cluster.history.predictions.errors) == 7


def test_a_split_meanwhile_leaves_nothing_to_compare(cluster: Cluster) -> None:
    split = BundleSplit(at=NOW + timedelta(minutes=5), plan_id="later", positions=(1,), shares=(0.5, 0.5))
    cluster.history = cluster.history.model_copy(update={"splits": {"b": split}})

    cluster.run(11)

    assert cluster.reasons() == {Reason.MOVED_AGAIN}
    assert cluster.history.predictions == Predictions()


def test_a_broker_that_restarted_unseen_is_not_compared(cluster: Cluster) -> None:
    cluster.scene.started[COLD[0]] = NOW + timedelta(minutes=5)

    cluster.run(11)

    assert cluster.comparison.brokers[COLD[0]].dropped is Reason.BROKER_RESTARTED
    assert cluster.shown()[COLD[0]].dropped == Reason.BROKER_RESTARTED.meaning
    assert len(cluster.history.predictions.errors) == 9


def test_a_broker_that_was_missed_once_is_not_compared(cluster: Cluster) -> None:
    cluster.scene.findings = (Finding(reason=Reason.JUST_STARTED, subject=HOT[0]),)
    cluster.run(3)
    cluster.scene.findings = ()

    cluster.run(8)

    assert cluster.comparison.brokers[HOT[0]].dropped is Reason.BROKER_QUARANTINED
    assert len(cluster.history.predictions.errors) == 9


@pytest.mark.parametrize(("minutes", "interval", "compared"), [(21, 60, False), (-70, 60, False), (65, 3600, True)])
def test_a_sample_that_comes_too_late_compares_nothing(
    tmp_path: Path, minutes: int, interval: int, compared: bool
) -> None:
    cluster = Cluster(tmp_path, interval_seconds=interval)

    cluster.run(minutes)

    assert cluster.reasons() == {None if compared else Reason.COMPARED_TOO_LATE}
    assert len(cluster.history.predictions.errors) == (10 if compared else 0)


def test_a_sample_that_does_not_count_compares_nothing(cluster: Cluster) -> None:
    before, awaiting, folder = cluster.history, cluster.comparison, cluster.run(11)
    awaiting.write(cluster.plan)
    cluster.history = before
    Summary.read(folder).model_copy(update={"counting": Reason.FORCED}).write(folder)

    cluster.report(folder)

    assert cluster.history.predictions == before.predictions
    assert cluster.comparison == awaiting


def test_a_comparison_counts_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    awaited = cluster.history
    cluster.report(cluster.plan)  # killed after the state was stored
    assert cluster.history == awaited

    before, compared = cluster.history, cluster.run(11)
    once, written = cluster.history, cluster.comparison

    cluster.history = before  # killed after the file was written, before the state was stored
    cluster.report(compared)
    assert (cluster.history, cluster.comparison) == (once, written)

    for again in (compared, cluster.plan):  # cleared
        cluster.report(again)
        assert cluster.history.predictions == once.predictions
        assert cluster.comparison == written
    monkeypatch.setattr(prediction_check, "WAIT", timedelta(0))
    cluster.report(cluster.plan)
    assert cluster.history.predictions == once.predictions


def test_a_run_whose_report_was_killed_is_compared_later(cluster: Cluster) -> None:
    cluster.history = MovesState()  # the file was written, the state was not stored

    cluster.report(cluster.plan)
    cluster.run(11)

    assert len(cluster.history.predictions.errors) == 10


def test_files_that_are_gone_are_not_awaited(cluster: Cluster) -> None:
    (cluster.plan / "input" / "brokers.parquet").delete()
    cluster.run(11)
    assert cluster.reasons() == {Reason.FILE_MISSING}

    cluster.history = MovesState(predictions=Predictions(awaited=("no run",)))
    cluster.run()
    assert cluster.history.predictions == Predictions()


def test_only_the_last_errors_count_and_few_say_nothing(cluster: Cluster) -> None:
    old = Predictions(awaited=cluster.history.predictions.awaited, errors=(99.0,) * KEPT)
    cluster.history = cluster.history.model_copy(update={"predictions": old})

    cluster.run(11)

    errors = cluster.history.predictions.errors
    assert (len(errors), errors[:40]) == (KEPT, (99.0,) * 40)
    assert all(abs(error) < 3 for error in errors[40:])
    assert predictions_off(Predictions(errors=(9.0,) * (FEWEST - 1))) == []
    assert predictions_off(Predictions(errors=(-9.0,) * FEWEST)) != []
    assert predictions_off(Predictions(errors=(3.0,) * FEWEST)) == []
