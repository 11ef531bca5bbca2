import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import REPORT, Broker, brokers, connect

from pulsar_rebalancer.collect.collector import RunTrigger, Sample, collect_sample, write_sample
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import validate
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.storage.path import StoragePath

CLUSTER = "/admin/v2/clusters/e2e"
BROKERS = "/admin/v2/brokers"
RUNTIME = f"{BROKERS}/configuration/runtime"
ISOLATION = f"{CLUSTER}/namespaceIsolationPolicies"
GROUP = "/admin/v2/namespaces/acme/shop/antiAffinity"
SAMPLE = json.loads((Path(__file__).parent / "data" / "load-report-4.0.8.json").read_text())
CONFIGURATION = {
    "loadBalancerEnabled": "true",
    "loadBalancerSheddingEnabled": "false",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
}
HALF = "\\ud800"
"""A lone surrogate, as JSON writes it."""


def escaped(document: Any) -> Response:
    """A JSON answer that contains `HALF` exactly as written here."""
    return Response(json.dumps(document).replace("\\\\ud800", HALF))


@contextmanager
def cluster(count: int = 3) -> Iterator[list[Broker]]:
    with brokers(count) as found:
        for one in found:
            one.on("GET", f"{BROKERS}/leaderBroker", {"brokerId": found[0].id})
            one.on("GET", RUNTIME, CONFIGURATION)
            one.on("GET", REPORT, SAMPLE | {"webServiceUrl": one.url, "brokerId": one.id})
            one.on("GET", GROUP, Response(status_code=204))
        yield found


def sample(seed: Broker, where: Path, **given: Any) -> Sample:
    async def go() -> Sample:
        entry = ClusterEntry(name="east", given=given, settings=validate(given, label="test"))
        async with connect(seed, read_timeout_s=20.0) as admin:
            return await collect_sample(admin, entry, RunTrigger(datetime.now(UTC), "x"))

    collected = asyncio.run(go())
    run = StoragePath(str(where))
    write_sample(collected, run)
    for name in tables.INPUT:
        assert Snapshot(run).read_table(name).equals(collected.input_tables[name])
    assert Policies.read(run) == collected.policies
    return collected


def errors(collected: Sample) -> dict[str, str]:
    return {row["broker"]: row["error"] for row in collected.input_tables["brokers"].to_pylist() if row["error"]}


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        ("xn--a:8080", "xn--a:8080"),
        ("user@evil.example:80", "'user@evil.example:80'"),
        (f"b{HALF}:8080", "'b?:8080'"),
        ("b\u200b:8080", r"'b\u200b:8080'"),
        ("b" * 5000 + ":8080", None),
        ("", "''"),
        (5, "'int'"),
        ([[["b:8080"]]], "'list'"),
    ],
)
def test_a_broker_of_an_odd_name_is_left_out_alone(tmp_path: Path, listed: object, shown: str | None) -> None:
    with cluster() as found:
        for one in found:
            one.on("GET", BROKERS, escaped([*(each.id for each in found), listed]))
        failed = errors(sample(found[0], tmp_path))
    assert len(failed) == 1
    assert shown is None or shown in failed
    assert max(map(len, failed)) <= 300


@pytest.mark.parametrize("name", [f"p{HALF}", "p\u200b\x1b", "p" * 5000])
def test_an_odd_name_of_a_policy_can_be_stored_and_shown(tmp_path: Path, name: str) -> None:
    policy = {"namespaces": ["acme/.*"], "primary": [f"none{HALF}", "127.*"], "secondary": ["("]}
    with cluster() as found:
        for one in found:
            one.on("GET", ISOLATION, escaped({name: policy, f"{name}2": 5}))
        collected = sample(found[0], tmp_path)
    (row,) = collected.input_tables["cluster"].to_pylist()
    said = row["policies_unclear"] or row["policies_problem"]
    assert said.isprintable()
    assert len(said) < 2100


@pytest.mark.parametrize(
    "report",
    [
        {"lastStats": {f"acme/shop{HALF}/0x00000000_0xffffffff": {}}, "brokerVersionString": HALF},
        {"webServiceUrl": 5, "webServiceUrlTls": f"https://{HALF}", "brokerId": []},
        {"cpu": HALF, "memory": {"usage": HALF}, "lastUpdate": 1e300, "startTimestamp": -1e300},
        {"lastStats": {"x" * 100_000: {}}},
        {"numTopics": 10**30, "msgRateIn": -(10**400)},
    ],
)
def test_an_odd_report_is_a_row(tmp_path: Path, report: dict[str, object]) -> None:
    with cluster() as found:
        found[1].on("GET", REPORT, escaped(SAMPLE | {"brokerId": found[1].id} | report))
        assert errors(sample(found[0], tmp_path)) == {}


@pytest.mark.parametrize("group", [f'"g{HALF}"', "g" * 100_000, b"\xff", '{"a": 1}', '"' + "\\u200b" * 50 + '"'])
def test_an_odd_group_concerns_its_namespace_alone(tmp_path: Path, group: str | bytes) -> None:
    with cluster() as found:
        for one in found:
            one.on("GET", GROUP, Response(group))
        collected = sample(found[0], tmp_path)
    (row,) = collected.input_tables["cluster"].to_pylist()
    assert errors(collected) == {}
    assert len(row["policies_problem"] or row["policies_unclear"] or "") < 2100
