import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from starlette.responses import JSONResponse
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER
from tests.full_disk import full_disk
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import TOKEN, brokers

from pulsar_rebalancer.collect.collector import EarlierData
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError, SnapshotError
from pulsar_rebalancer.orders.manual_plans import HandedOverPlan, HandedOverPlans, ShownPlan
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import CommitMark
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import CollectForPlanOperator, CollectOperator
from pulsar_rebalancer_airflow.operators import collect as collecting
from pulsar_rebalancer_airflow.state_store import ALL_DOCUMENTS
from pulsar_rebalancer_airflow.trigger_forms import run_params


def collect(storage, state, given=None, params=None, **kwargs):
    values = {"mode": "auto", "connection": "pulsar_test"} | (given or {})
    entry = ClusterEntry(name=CLUSTER, given=values, settings=Settings.model_validate(values))
    form = {name: param.value for name, param in run_params(entry.settings).items()}
    operator = CollectOperator(task_id="collect", entry=entry, root=storage.root)
    return operator.execute(context(CLUSTER, state, params=form | (params or {}), **kwargs))


def test_writes_the_input_of_a_run(served, storage, state):
    state.set(DecisionState.KEY, DecisionState(seq=4, plan_id="p").model_dump(mode="json"))

    run = StoragePath(collect(storage, state, params={"force": "new broker", "excluded_brokers": ["x:1"]}))

    assert run.uri.startswith(storage.runs.uri)
    assert Snapshot(run).read_table("brokers").num_rows == 4
    request = RunRequest.read(run)
    assert (request.airflow_run_id, request.requested_by) == ("manual__1", "ada")
    assert request.params.force == "new broker"
    assert request.resolved.settings.excluded_brokers == ("x:1",)
    stored = (run / "input" / "state.json").read_json()
    assert (stored["decision"]["seq"], stored["moves"]["unloads"]) == (4, {})


@pytest.mark.parametrize(("operator", "keeps"), [(CollectOperator, True), (CollectForPlanOperator, False)])
def test_only_a_rebalancing_run_keeps_what_brokers_publish(storage, state, operator, keeps, monkeypatch):
    """A run that only shows a plan may take place at the same time."""
    given: list[EarlierData] = []

    async def asked(*arguments: Any) -> Any:
        given.append(arguments[-1])
        raise AdminError(Reason.UNREACHABLE, "nobody is there")

    monkeypatch.setattr(collecting, "collect_sample", asked)
    values = {"mode": "auto", "connection": "pulsar_test"}
    entry = ClusterEntry(name=CLUSTER, given=values, settings=Settings.model_validate(values))
    with pytest.raises(AdminError):
        operator(task_id="collect", entry=entry, root=storage.root).execute(context(CLUSTER, state))

    assert [(earlier.state_folder, earlier.stores_load_data) for earlier in given] == [(storage.state, keeps)]


def test_a_plan_that_waited_for_a_second_person_needs_one_after_a_change_to_auto(served, storage, state):
    now, plan = datetime.now(UTC), "0" * 64
    shown = ShownPlan(plan_id="p", action=None, at=now, by="ada")

    def given(mode, by):
        handed = HandedOverPlan(plan=shown, run_id="manual__1", at=now, by=by)
        store_of(state).put(HandedOverPlans(plans={plan: handed}))
        return collect(storage, state, {"two_people": True, "mode": mode}, {"plan": plan})

    with pytest.raises(AirflowFailException, match="same_person"):
        given("auto", "ada")
    assert given("approve", "ada")
    assert given("auto", "bob")


def test_a_retry_takes_a_new_folder(served, storage, state):
    assert collect(storage, state) != collect(storage, state)


# Without `served` there is no connection: whatever asked the brokers would fail in another way.
@pytest.mark.parametrize(("given", "params"), [({"mode": "off"}, {}), ({}, {"mode": "off"})])
def test_off_asks_nobody(storage, state, given, params):
    with pytest.raises(AirflowSkipException, match="off"):
        collect(storage, state, given, params)


@pytest.mark.parametrize(
    ("given", "params", "said"),
    [
        ({}, {"force_threshold": 10}, "force: Give a reason for the forced run"),
        ({}, {"low_threshold": 30, "high_threshold": 20}, "low_threshold: The value is above high_threshold"),
        ({"mode": "observe"}, {"mode": "auto"}, "not raise it from observe to auto"),
        ({"max_bundles_per_run": 5}, {"max_bundles_per_run": 6}, "max_bundles_per_run: .* not raise it above 5"),
        ({"high_threshold": 20}, {"low_threshold": 30}, "low_threshold 30 is above high_threshold 20"),
        ({"low_threshold": 30}, {"high_threshold": 20}, "low_threshold 30 is above high_threshold 20"),
        ({"strategy": "ThresholdShedder"}, {"force": "new broker", "force_threshold": 9}, "support force_threshold"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_asked(storage, state, given, params, said):
    with pytest.raises(AirflowFailException, match=said):
        collect(storage, state, given, params)


def test_a_threshold_is_held_against_that_of_the_brokers(served, storage, state):
    """45 is above the default of the high threshold, which counts for nothing where brokers have their own."""
    served.cluster.configuration.set("loadBalancerAvgShedderHighThreshold", "50")

    settings = RunRequest.read(StoragePath(collect(storage, state, params={"low_threshold": 45}))).resolved.settings

    assert (settings.low_threshold, settings.high_threshold) == (45, 50)
    with pytest.raises(AirflowFailException, match="low_threshold 55 is above high_threshold 50"):
        collect(storage, state, params={"low_threshold": 55})


def test_refused_credentials_are_not_tried_again(served, storage, state):
    served.cluster.faults.add("unauthorized", path="")

    with pytest.raises(AirflowFailException, match="unauthorized"):
        collect(storage, state)


def test_an_error_has_no_character_that_hides_or_forges_text(monkeypatch, storage, state):
    hidden = "\x1b[31m\x00\u202e\u3164\u034f\u200b"
    with brokers(1) as (broker,):
        broker.on("GET", "/admin/v2/brokers", JSONResponse({"reason": f"no{hidden}way"}, 403))
        connection = {"conn_type": "pulsar_admin", "host": broker.id, "password": TOKEN}
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(connection))

        with pytest.raises(AirflowFailException, match=r"answered 403, no \[31m way") as failed:
            collect(storage, state)

    assert str(failed.value).isprintable()
    assert not {"\u3164", "\u034f"} & set(str(failed.value))


def test_a_full_disk_has_a_reason_may_pass_and_leaves_nothing_half_written(served, storage, state):
    with full_disk(), pytest.raises(SnapshotError, match="cannot be written") as failed:
        collect(storage, state)

    assert failed.value.reason is Reason.STORAGE_FAILED
    assert not [path for path in Path(storage.root).rglob("*") if path.name.startswith(".")]
    collect(storage, state)


@pytest.mark.parametrize("kept", [(), ("control", "watch")])
def test_the_first_run_writes_every_document(served, storage, kept):
    ordered = {key: {"version": 1} for key in kept}  # people may order, and the watch may look, before any run
    state = MemoryState(documents={**ordered})

    collect(storage, state)

    assert state.documents.keys() == {model.KEY for model in ALL_DOCUMENTS}
    assert {key: state.documents[key] for key in kept} == ordered


@pytest.mark.parametrize("key", [model.KEY for model in ALL_DOCUMENTS])
def test_the_loss_of_any_document_stops_runs_and_says_what_to_do(storage, state, key):
    CommitMark(seq=3, at=datetime.now(UTC)).write(storage.new_run_folder(datetime.now(UTC)))
    del state.documents[key]

    with pytest.raises(AirflowFailException, match=rf"^{key}: missing \[state_lost\]") as blocked:
        collect(storage, state)

    assert "pulsar_control__<cluster> with restore or reset" in str(blocked.value)
    assert "then repeat the lost orders" in str(blocked.value)
    assert key not in state.documents
