from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, store_of
from tests.include.pulsar_rebalancer.decide.snapshots import NOW as SAMPLED
from tests.include.pulsar_rebalancer.decide.snapshots import Snapshots, fates, name, planned
from tests.plugins.pulsar_rebalancer_airflow.operators.control_scene import control
from tests.plugins.pulsar_rebalancer_airflow.operators.test_collect import collect
from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_plan import plan_request
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.orders.in_force import buttons
from pulsar_rebalancer.orders.manual_plans import Drain
from pulsar_rebalancer.orders.order import Control, GivenOrder, Situation
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude_run
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import ManualPlanRecord, parse_form
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_simulator.serve import RunningCluster

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
SETTINGS = Settings(connection="pulsar_test")
OWNED = {"a": {name(1): 20.0, name(2, "t/other"): 10.0}, "b": {name(4): 10.0}, "c": {}}


def order(storage: ClusterStorage, state: MemoryState, action: str, namespace: str, **more: Any) -> str:
    params = {"action": action, "subject": namespace, "reason": "new disks"} | more
    said: str = control(storage, state, SETTINGS, params)["in_force"]
    return said


def freeze(storage: ClusterStorage, state: MemoryState, namespace: str, until: datetime = NOW + HOUR) -> str:
    return order(storage, state, "freeze", namespace, until=until.isoformat())


def frozen(until: datetime = SAMPLED + HOUR) -> Control:
    given = GivenOrder(action="freeze", subject="t/n", at=SAMPLED - HOUR, by="ada", reason="new disks", until=until)
    return Control(orders=(given,))


def test_a_freeze_is_ordered_told_and_ended(storage: ClusterStorage, state: MemoryState) -> None:
    said = [freeze(storage, state, "t/n"), freeze(storage, state, "t/other")]

    assert f"{NOW + HOUR:%H:%M} UTC (ada: new disks)" in said[1]
    with pytest.raises(AirflowFailException, match="ends later"):
        freeze(storage, state, "t/n", NOW + HOUR / 2)
    with pytest.raises(AirflowFailException, match="Give the namespace"):
        freeze(storage, state, "t")
    left = order(storage, state, "unfreeze", "t/n")
    assert "t/n frozen" not in left
    assert "t/other frozen" in left

    def offered(now: datetime) -> dict[str, str]:
        situation = Situation(SETTINGS, store_of(state).orders(), now)
        return {each.button: each.proposed for each in buttons(situation) if each.group == "Bundles"}

    assert offered(NOW) == {"Freeze": "", "Unfreeze": "t/other"}
    assert offered(NOW + 2 * HOUR) == {"Freeze": ""}


def test_a_run_decides_by_the_freezes_that_have_not_ended(
    served: RunningCluster, storage: ClusterStorage, state: MemoryState
) -> None:
    store_of(state).put(frozen(until=NOW - HOUR))
    assert StateBefore.read(StoragePath(collect(storage, state))).control == Control()
    freeze(storage, state, "t/n")
    [given] = StateBefore.read(StoragePath(collect(storage, state))).control.orders
    assert (given.action, given.subject) == ("freeze", "t/n")


@pytest.mark.parametrize(("overrule", "to"), [((), "namespace_excluded"), (("exclusions",), "c:1")])
def test_frozen_bundles_stay_unless_overruled(tmp_path: Path, overrule: tuple[str, ...], to: str) -> None:
    snapshots = Snapshots(tmp_path, OWNED)
    form = {"action": "unload", "bundles": ["t/*"], "destination": "c:1", "overrule": overrule, "reason": "why"}
    run = snapshots.take(control=frozen().model_dump(mode="json"))

    plan_request(snapshots.storage, run, parse_form(form), "ada")

    assert fates(run) == {name(1): to, name(2, "t/other"): "c:1", name(4): to}


@pytest.mark.parametrize(("overrule", "stays"), [((), True), ((Overrule.EXCLUSIONS,), False)])
def test_frozen_bundles_stay_on_a_drained_broker(tmp_path: Path, overrule: tuple[Overrule, ...], stays: bool) -> None:
    drain = Drain(at=SAMPLED, by="ada", reason="new disks", overrule=overrule).model_dump(mode="json")
    drains = {"version": 1, "brokers": {"a:1": drain}}
    snapshots = Snapshots(tmp_path, OWNED)
    run = snapshots.take(drains=drains, control=frozen().model_dump(mode="json"))

    progress = planned(RunInput.read(run.uri)).drain_progress["a:1"]

    assert (progress.moving, progress.stay) == ((1, {"namespace_excluded": 1}) if stays else (2, {}))


@pytest.mark.parametrize("overruled", [False, True])
def test_a_freeze_during_a_wave_keeps_its_bundles(scene: UnloadScene, overruled: bool) -> None:
    moves = scene.moves(3)
    namespace = namespace_of(moves[0]["bundle"])
    freeze(scene.storage, scene.state, namespace)
    before = StateBefore(control=store_of(scene.state).get(Control) if overruled else Control())

    run = scene.run(moves, before=before)
    if overruled:
        form = {"action": "unload", "bundles": [namespace], "overrule": ["exclusions"], "reason": "why"}
        by_hand = ManualPlanRecord(by="ada", request=parse_form(form))
        Summary.read(run).model_copy(update={"by_hand": by_hand}).write(run)
    scene.unload(run)

    stay = 0 if overruled else sum(namespace_of(move["bundle"]) == namespace for move in moves)
    found = conclude_run(run, Reason.OPEN, NOW).move_counts
    assert found == {reason: n for reason, n in (("moved", 3 - stay), ("namespace_excluded", stay)) if n}
