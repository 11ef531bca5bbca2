from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from tests.airflow_context import context, store_of
from tests.airflow_runs import CLUSTER
from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

from pulsar_rebalancer.carry_out.split_executor import splits_to_keep
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.pulsar.bundle_calls import BundleAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude_run
from pulsar_rebalancer.run.plan import outcome_by_split
from pulsar_rebalancer.state import MovesState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import SplitOperator

ACTS = {"split_mode": "auto"}
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def row(scene: UnloadScene, rank: int = 0, condition: str | None = "msg_rate") -> dict[str, Any]:
    """A split of a bundle with traffic in the middle of its range."""
    bundle = scene.moves(rank + 1)[rank]["bundle"]
    lower, upper = (int(bound, 16) for bound in bundle.rpartition("/")[2].split("_"))
    found = {"cluster": CLUSTER, "broker": "b:1", "bundle": bundle, "rank": rank, "condition": condition}
    found |= {"algorithm": "topic_count_equally_divide", "positions": [lower + (upper - lower) // 2]}
    return found | {"shares": [0.5, 0.5], "unload": False, "taken": True, "reason": "to_be_split"}


def split(
    scene: UnloadScene, run: StoragePath, gate: str = "open", started: datetime | None = None, **present: Any
) -> dict[str, int]:
    settings = {"mode": "auto", "connection": "pulsar_test"} | ACTS | present
    operator = SplitOperator(task_id="split", cluster=CLUSTER, settings=settings, run=run.uri, gate="gate")
    given: Any = context(CLUSTER, scene.state, xcoms={("gate", "reason"): gate}, started=started or NOW)
    return operator.execute(given)


def is_split(scene: UnloadScene, planned: dict[str, Any]) -> bool:
    return set(planned["positions"]) <= set(scene.cluster.topology.boundaries(planned["bundle"].rpartition("/")[0]))


def test_splits_and_says_so_in_the_store_before_and_after(scene):
    planned, seen = row(scene), []
    real = scene.cluster.split_via

    def split_via(*args: Any, **more: Any) -> Any:
        seen.append(known(scene, planned)["outcome"])
        return real(*args, **more)

    scene.monkeypatch.setattr(scene.cluster, "split_via", split_via)
    run = scene.run([], splits=[planned], **ACTS)

    assert split(scene, run) == {"split": 1}

    assert is_split(scene, planned)
    assert set(seen) == {""}
    assert known(scene, planned)["outcome"] == "split"
    assert known(scene, planned)["shares"] == [0.5, 0.5]
    assert [each.reason for each in conclude_run(run, Reason.OPEN, run_time(run)).splits] == ["split"]
    # a retry finds what an earlier attempt left
    seen.clear()
    assert split(scene, run) == {"split": 1}
    assert seen == []


def test_a_stop_begins_no_further_split_and_a_cleared_run_goes_on(scene):
    planned = [row(scene, rank) for rank in range(2)]
    caps: dict[str, Any] = {"max_splits_per_run": 2}
    run = scene.run([], splits=planned, **ACTS | caps)
    real, store = scene.cluster.split_via, store_of(scene.state)

    def stopping(*args: Any, **more: Any) -> Any:
        store.put(Control().with_order(GivenOrder(action="stop", at=NOW, by="ada", reason="wait")))
        return real(*args, **more)

    scene.monkeypatch.setattr(scene.cluster, "split_via", stopping)
    with pytest.raises(AirflowFailException, match="stopped"):
        split(scene, run, started=NOW - timedelta(minutes=1), **caps)
    assert [is_split(scene, each) for each in planned] == [True, False]
    assert {outcome.reason for outcome in outcome_by_split(run).values()} == {"split", "stopped"}

    assert split(scene, run, started=NOW + timedelta(seconds=1), **caps) == {"split": 2}
    assert all(is_split(scene, each) for each in planned)


class KilledError(BaseException):
    """Ends the task as a kill does: nothing is written any more."""


def kill(scene: UnloadScene, run: StoragePath, made: int, **caps: Any) -> None:
    """Kill the task: before its first request, or once a broker has made the last of `made` splits."""
    real = BundleAdmin.split

    async def split_until(admin: BundleAdmin, *args: Any, **more: Any) -> None:
        nonlocal made
        made -= 1
        if made >= 0:
            await real(admin, *args, **more)
        if made <= 0:
            raise KilledError

    with scene.monkeypatch.context() as patch:
        patch.setattr(BundleAdmin, "split", split_until)
        with pytest.raises(KilledError):
            split(scene, run, **caps)


@pytest.mark.parametrize("made", [0, 1, 2])
def test_after_a_kill_a_bundle_that_is_whole_goes_through_all_checks_again(scene, made):
    planned = [row(scene, rank) for rank in range(2)]
    caps: dict[str, Any] = {"max_splits_per_run": 2}
    run = scene.run([], splits=planned, **ACTS | caps)
    kill(scene, run, made, **caps)
    assert [is_split(scene, each) for each in planned] == [number < made for number in range(2)]
    found = {each.bundle: each.reason for each in conclude_run(run, Reason.OPEN, run_time(run)).splits}
    before = ["interrupted", "not_attempted"] if made < 2 else ["split", "interrupted"]
    assert [found[each["bundle"]] for each in planned] == before

    asked: list[Any] = []
    scene.monkeypatch.setattr(scene.cluster, "split_via", lambda *args, **more: asked.append(args))
    excluded = {"excluded_bundles": [each["bundle"] for each in planned]}
    ended = split(scene, run, **caps | excluded)

    outcome = conclude_run(run, Reason.OPEN, run_time(run))
    after = {each.bundle: (each.reason, each.attempts) for each in outcome.splits}
    expected = [("split", 1) if number < made else ("bundle_excluded", 0) for number in range(2)]
    assert [after[each["bundle"]] for each in planned] == expected
    assert ended == Counter(reason for reason, _ in expected)
    assert asked == []
    kept = splits_to_keep(store_of(scene.state).get(MovesState).splits, outcome, datetime.now(UTC))
    assert set(kept) == {each["bundle"] for each in planned[:made]}


def known(scene: UnloadScene, planned: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = scene.state.documents[MovesState.KEY]["splits"][planned["bundle"]]
    return found


def run_time(run: StoragePath) -> Any:
    from pulsar_rebalancer.run.request import RunRequest

    return RunRequest.read(run).collected_at


@pytest.mark.parametrize(
    ("gate", "present", "condition"),
    [
        ("observe", {}, "msg_rate"),
        ("None", {}, "msg_rate"),
        ("open", {"mode": "observe"}, "msg_rate"),
        ("open", {"pause": {"until": "2999-01-01T00:00:00Z", "reason": "stop"}}, None),
        ("open", {"split_mode": "off"}, "msg_rate"),
        ("open", {"split_mode": "observe"}, "msg_rate"),
    ],
)
def test_behind_a_closed_gate_nothing_is_split(scene, gate, present, condition):
    planned = row(scene, condition=condition)
    run = scene.run([], splits=[planned], **ACTS)

    with pytest.raises(AirflowSkipException):
        split(scene, run, gate, **present)

    assert not is_split(scene, planned)
    assert scene.state.writes == []


@pytest.mark.parametrize(("condition", "splits"), [("msg_rate", False), (None, True)])
def test_present_settings_limit_automatic_splits_only(scene, condition, splits):
    planned = [row(scene, rank, condition=condition) for rank in (0, 1)]
    run = scene.run([], splits=planned, **ACTS | {"max_splits_per_run": 2})

    with nullcontext() if splits else pytest.raises(AirflowSkipException):
        split(scene, run, max_splits_per_run=1)

    assert [is_split(scene, each) for each in planned] == [splits] * 2


@pytest.mark.parametrize(("condition", "splits"), [("msg_rate", False), (None, True)])
def test_splits_stop_once_a_broker_splits_by_itself(scene, condition, splits):
    planned, values = row(scene, condition=condition), {"loadBalancerAutoBundleSplitEnabled": "true"}
    scene.cluster.faults.add("other_configuration", scene.cluster.active_brokers()[-1], values=values)
    run = scene.run([], splits=[planned], **ACTS)

    if splits:
        assert split(scene, run) == {"split": 1}
    else:
        with pytest.raises(AirflowSkipException, match="builtin_splitting_on"):
            split(scene, run)
        told = conclude_run(run, Reason.OPEN, run_time(run)).splits
        assert [each.reason for each in told] == ["builtin_splitting_on"]

    assert is_split(scene, planned) is splits
