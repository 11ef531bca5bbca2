import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from pulsar_rebalancer.collect.collector import RunTrigger, collect_sample, write_sample
from pulsar_rebalancer.config.clusters_file import ClusterEntry, Origin, RunParams
from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.errors import AdminError, SettingsError
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import INPUT
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_simulator import scenario
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.faults import FaultKind
from pulsar_simulator.serve import serve
from pulsar_simulator.topology import Topology

BROKERS, BUNDLES = 4, 24


@pytest.fixture
def spec():
    return scenario.spec(brokers=BROKERS, bundles=BUNDLES)


@pytest.fixture
def served(spec):
    cluster = Cluster(spec)
    cluster.clock.advance(300)
    with serve(cluster) as face:
        yield face


def entry(**given):
    return ClusterEntry(name="east", given=given, settings=validate(given, label="test"))


def sample(face, given=None, params=None, **connection):
    async def go():
        own: dict[str, Any] = {"seeds": (face.urls[0],), "token": SecretStr(face.token), "read_timeout_s": 20.0}
        one = AdminConnection(**own | connection)
        async with PulsarAdmin(one) as admin:
            trigger = RunTrigger(
                now=datetime.fromtimestamp(face.cluster.clock.now(), UTC),
                airflow_run_id="manual__2026-11-21T12:00:00+00:00",
                run_params=params or RunParams(),
                requested_by="anna",
            )
            return await collect_sample(admin, entry(**(given or {})), trigger)

    return asyncio.run(go())


def rows(collected, name):
    return collected.input_tables[name].to_pylist()


def broker(face, i):
    return face.cluster.membership.brokers[i].broker_id


def errors(collected):
    return {row["broker"]: row["error"] for row in rows(collected, "brokers") if row["error"]}


def test_a_healthy_cluster(served):
    collected = sample(served)
    (cluster,) = rows(collected, "cluster")
    assert cluster["leader"] == broker(served, 0)
    assert cluster["load_manager"] == "ModularLoadManagerImpl"
    assert (cluster["brokers_listed"], cluster["brokers_reported"]) == (BROKERS, BROKERS)
    assert cluster["bundles"] == collected.input_tables["bundles"].num_rows > BUNDLES / 2
    assert cluster["policies_readable"] is True
    assert cluster["policies_problem"] is None
    assert cluster["settings_in_disagreement"] == ""
    found = rows(collected, "brokers")
    assert [row["broker"] for row in found] == sorted(b.broker_id for b in served.cluster.membership.brokers)
    assert errors(collected) == {}
    assert {row["listings"] for row in found} == {1}
    assert all(row["host_samples"] == (row["collected_at"] - row["started_at"]).total_seconds() // 60 for row in found)
    assert max(row["cpu_usage"] / row["cpu_limit"] for row in found) > 0.5
    for row in found:
        held = [b for b in rows(collected, "bundles") if b["broker"] == row["broker"]]
        assert len(held) == row["bundles"]
        assert sum(b["msg_rate_in"] for b in held) == pytest.approx(row["msg_rate_in"])
    assert {row["owners"] for row in rows(collected, "bundles")} == {1}
    assert {row["policy"] for row in rows(collected, "bundles")} == {None}


def test_a_sample_is_written_and_read_back(served, tmp_path):
    collected = sample(served, given={"low_threshold": 12}, params=RunParams(force="drill"))
    run = StoragePath(str(tmp_path / "run"))
    write_sample(collected, run)
    for name in INPUT:
        assert Snapshot(run).read_table(name).equals(collected.input_tables[name])
    assert Policies.read(run) == collected.policies
    request = RunRequest.read(run)
    assert request == collected.request
    assert (request.cluster, request.requested_by, request.params.force) == ("east", "anna", "drill")
    assert request.resolved.origins["low_threshold"] is Origin.FILE
    assert request.resolved.origins["high_threshold"] is Origin.BROKERS


def test_settings_come_from_the_leader_and_differences_are_named(served):
    name = "loadBalancerAvgShedderLowThreshold"
    served.cluster.faults.add(FaultKind.OTHER_CONFIGURATION, broker(served, 1), values={name: "33"})
    collected = sample(served)
    assert rows(collected, "cluster")[0]["settings_in_disagreement"] == name
    assert collected.request.resolved.settings.low_threshold != 33


def test_a_single_shedding_broker_is_found(served):
    values = {"loadBalancerEnabled": "true", "loadBalancerSheddingEnabled": "true"}
    assert rows(sample(served), "cluster")[0]["builtin_shedding"] is False
    served.cluster.faults.add(FaultKind.OTHER_CONFIGURATION, broker(served, 2), values=values)
    assert rows(sample(served), "cluster")[0]["builtin_shedding"] is True


def test_a_single_splitting_broker_is_found_unless_overruled(served):
    assert sample(served).request.resolved.settings.auto_split is False
    values = {"loadBalancerAutoBundleSplitEnabled": "true"}
    served.cluster.faults.add(FaultKind.OTHER_CONFIGURATION, broker(served, 2), values=values)
    resolved = sample(served).request.resolved
    assert (resolved.settings.auto_split, resolved.origins["auto_split"]) == (True, Origin.BROKERS)
    assert sample(served, {"auto_split": False}).request.resolved.settings.auto_split is False


def test_a_broken_entry_is_refused(served):
    broken = ClusterEntry(name="east", given={}, settings=Settings(), error="clusters.yaml: east: low is above high")

    async def go():
        async with PulsarAdmin(AdminConnection(seeds=(served.urls[0],))) as admin:
            await collect_sample(admin, broken, RunTrigger(datetime.now(UTC), "x"))

    with pytest.raises(SettingsError, match="low is above high"):
        asyncio.run(go())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FaultKind.DEAD, "unreachable"),
        (FaultKind.GARBAGE, "bad_answer"),
        (FaultKind.HALF_JSON, "bad_answer"),
        (FaultKind.NULL_ANSWER, "no_load_report"),
        (FaultKind.ERROR_500, "no_load_report"),
        (FaultKind.WRONG_BROKER, "wrong_broker"),
    ],
)
def test_a_broker_that_fails_keeps_its_row(served, kind, reason):
    bad = broker(served, 3)
    served.cluster.faults.add(kind, bad)
    collected = sample(served)
    assert errors(collected) == {bad: reason}
    (row,) = [row for row in rows(collected, "brokers") if row["broker"] == bad]
    assert row["cpu_usage"] is None
    assert bad not in {b["broker"] for b in rows(collected, "bundles")}
    (cluster,) = rows(collected, "cluster")
    assert (cluster["brokers_listed"], cluster["brokers_reported"]) == (BROKERS, BROKERS - 1)


def test_a_report_is_judged_by_the_time_at_which_it_was_read(served):
    ages = {row["broker"]: row["report_age_seconds"] for row in rows(sample(served), "brokers")}
    served.cluster.faults.add(FaultKind.SLOW, broker(served, 3), path="configuration", amount=1.0)
    late = {row["broker"]: row["report_age_seconds"] for row in rows(sample(served), "brokers")}
    assert all(late[name] - ages[name] > 0.5 for name in ages), "one slow broker delayed the reports of all"


def test_a_report_without_bundles_is_no_answer(served):
    bad = broker(served, 1)
    served.cluster.faults.add(FaultKind.MISSING_FIELD, bad, target="lastStats")
    assert errors(sample(served)) == {bad: "bad_answer"}


@pytest.mark.parametrize("kind", [FaultKind.NULL_ANSWER, FaultKind.ERROR_500])
def test_a_load_manager_without_reports_is_refused(served, kind):
    served.cluster.faults.add(kind)
    with pytest.raises(AdminError) as refused:
        sample(served)
    assert refused.value.reason == "no_load_report"
    assert "ModularLoadManagerImpl" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "path", "reason"),
    [
        (FaultKind.UNAUTHORIZED, "", "unauthorized"),
        (FaultKind.FORBIDDEN, "/admin/v2/brokers", "forbidden"),
        (FaultKind.FORBIDDEN, "/configuration/runtime", "forbidden"),
        (FaultKind.FORBIDDEN, "/load-report", "forbidden"),
    ],
)
def test_refused_credentials_are_said_at_once(served, kind, path, reason):
    served.cluster.faults.add(kind, path=path)
    with pytest.raises(AdminError) as refused:
        sample(served)
    assert refused.value.reason == reason
    assert served.token not in str(refused.value)


def test_a_bundle_with_two_owners_has_two_rows(served):
    name = next(b["bundle"] for b in rows(sample(served), "bundles") if b["bundle"].startswith("acme/"))
    owner = next(b["broker"] for b in rows(sample(served), "bundles") if b["bundle"] == name)
    other = next(b.broker_id for b in served.cluster.membership.brokers if b.broker_id != owner)
    served.cluster.faults.add(FaultKind.TWO_OWNERS, other, bundle=name)
    found = [b for b in rows(sample(served), "bundles") if b["owners"] != 1]
    assert {(b["bundle"], b["broker"], b["owners"]) for b in found} == {(name, owner, 2), (name, other, 2)}


def test_policies_mark_their_bundles(spec):
    names = [namespace.name for namespace in spec.topology.namespaces.values()]
    grouped = [
        replace(namespace, anti_affinity_group="group-1" if namespace.name == names[1] else "")
        for namespace in spec.topology.namespaces.values()
    ]
    isolated = {"p": {"namespaces": [names[0]], "primary": ["none.*"], "secondary": []}}
    cluster = Cluster(replace(spec, topology=Topology(grouped), isolation_policies=isolated))
    with serve(cluster) as face:
        collected = sample(face)
    found = {(b["bundle"].rpartition("/")[0], b["policy"]) for b in rows(collected, "bundles")}
    users = {(namespace, policy) for namespace, policy in found if not namespace.startswith("pulsar/")}
    expected = {names[0]: "isolation", names[1]: "anti_affinity"}
    assert users == {(name, expected.get(name)) for name in names}


@pytest.mark.parametrize("path", ["namespaceIsolationPolicies", "antiAffinity"])
def test_policies_that_cannot_be_read_are_said(served, path):
    served.cluster.faults.add(FaultKind.FORBIDDEN, path=path)
    (cluster,) = rows(sample(served), "cluster")
    assert cluster["policies_readable"] is False
    assert "forbidden" in cluster["policies_problem"]
