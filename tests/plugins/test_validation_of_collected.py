"""From simulated brokers over HTTP to findings: what is broken at a broker is named for that broker."""

import asyncio
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.clusters import ClusterEntry
from pulsar_rebalancer.collect import collect, save
from pulsar_rebalancer.settings import RunParams, Settings
from pulsar_rebalancer.simulation import scenario
from pulsar_rebalancer.simulation.faults import FaultKind
from pulsar_rebalancer.simulation.serve import running
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer_airflow.validation import validate

FAULTS = [
    (FaultKind.DEAD, "report_missing", "error unreachable"),
    (FaultKind.NULL_ANSWER, "report_missing", "error no_load_report"),
    (FaultKind.GARBAGE, "report_missing", "error bad_answer"),
    (FaultKind.WRONG_BROKER, "report_missing", "error wrong_broker"),
    (FaultKind.BARE_NAN, "not_a_number", "cpu_usage missing"),
    (FaultKind.NAN_USAGE, "not_a_number", "cpu_usage missing"),
    (FaultKind.MISSING_FIELD, "not_a_number", "cpu_usage missing, cpu_limit missing"),
    (FaultKind.NEGATIVE_USAGE, "negative_figure", "cpu_usage -1"),
    (FaultKind.OVER_LIMIT, "over_limit", "cpu_percent 300"),
    (FaultKind.ZERO_LIMIT, "zero_limit", "bandwidth_in_limit 0, bandwidth_out_limit 0"),
    (FaultKind.STALE_LAST_UPDATE, "report_stale", "report_age_seconds"),
    (FaultKind.FUTURE_CLOCK, "clock_ahead", "report_age_seconds -"),
]


def validation_of(cluster, folder, faults=()):
    cluster.clock.advance(300)
    given = {"max_quarantined_brokers": len(FAULTS)}

    async def go(face):
        async with PulsarAdmin(AdminConnection(seeds=(face.urls[0],), token=SecretStr(face.token))) as admin:
            return await collect(
                admin,
                ClusterEntry(name="east", given=given, settings=Settings(**given)),
                RunParams(),
                now=datetime.fromtimestamp(cluster.clock.now(), UTC),
                airflow_run_id="manual__1",
            )

    with running(cluster) as face:
        for i, (kind, _, _) in enumerate(faults):
            cluster.faults.add(kind, cluster.membership.brokers[i + 2].broker_id)
        run = Folder(str(folder))
        save(asyncio.run(go(face)), run)
        names = [broker.broker_id for broker in cluster.membership.brokers]
    return names, validate(run)


def test_a_healthy_cluster_has_no_findings(tmp_path):
    _, validation = validation_of(scenario.build(brokers=5, bundles=60), tmp_path)
    assert validation.findings == ()


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    cluster = scenario.build(brokers=len(FAULTS) + 2, bundles=120)
    return validation_of(cluster, tmp_path_factory.mktemp("broken"), FAULTS)


@pytest.mark.parametrize("i", range(len(FAULTS)), ids=[str(kind) for kind, _, _ in FAULTS])
def test_a_fault_is_named_for_its_broker(broken, i):
    names, validation = broken
    _, reason, detail = FAULTS[i]
    (found,) = [finding for finding in validation.findings if finding.subject == names[i + 2]]
    assert found.reason == reason
    assert found.detail.startswith(detail)


def test_nothing_else_is_found(broken):
    _, validation = broken
    assert len(validation.findings) == len(FAULTS)
