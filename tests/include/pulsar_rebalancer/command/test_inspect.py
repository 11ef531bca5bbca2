import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.browser import browser

from pulsar_rebalancer.collect.broker_settings import Runtimes
from pulsar_rebalancer.command import advice, inspect, inspection
from pulsar_rebalancer.command.__main__ import main
from pulsar_rebalancer.command.inspect import FINE, FOUND, UNREADABLE, connection_to
from pulsar_rebalancer.errors import AdminError, SettingsError
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.pulsar.answers import BrokerAnswer
from pulsar_rebalancer.pulsar.exchange import Request
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_rebalancer.reasons import Reason
from pulsar_simulator import scenario
from pulsar_simulator.cluster import Cluster, ClusterSpec
from pulsar_simulator.faults import FaultKind
from pulsar_simulator.serve import RunningCluster, serve
from pulsar_simulator.timeline import ManualClock


class Now(ManualClock):
    def __init__(self) -> None:
        self._now = time.time() - 300


@pytest.fixture
def spec() -> ClusterSpec:
    return scenario.spec(brokers=4, bundles=32)


@pytest.fixture
def served(spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    clock = Now()
    cluster = Cluster(spec, clock)
    clock.advance(300)
    with serve(cluster) as face:
        monkeypatch.setenv("PULSAR_TOKEN", face.token)
        yield face


def document(face: RunningCluster, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    main(["inspect", face.urls[0], "--json", *more])
    seen: dict[str, Any] = json.loads(capsys.readouterr().out)
    return seen


def test_scores_pairs_and_what_would_move(served, capsys):
    seen = document(served, capsys)
    hottest, coldest = seen["brokers"][0], seen["brokers"][-1]
    (sample,) = seen["samples"]
    assert seen["thresholds"] == {"low": {"gap": 15, "hits": 8}, "high": {"gap": 40, "hits": 2}}
    assert hottest["resource"] == "cpu"
    assert hottest["score"] == hottest["resources"]["cpu"]
    pair = sample["pairs"][0]
    assert (pair["source"], pair["destination"]) == (hottest["broker"], coldest["broker"])
    assert pair["hits"] == {"low": {"have": 1, "need": 8}, "high": {"have": 1, "need": 2}}
    assert sample["plan"]["moves"] == []
    plan = seen["if_it_lasts"]
    assert plan["moves"][0] | {"bundle": ""} == {"bundle": "", "from": hottest["broker"], "to": coldest["broker"]}
    assert plan["predicted_range"] < plan["range"]
    assert seen["configured"]["shedder"] == "AvgShedder"
    assert seen["configured"]["if_it_lasts"] == plan


def test_samples_over_time_count_hits_until_bundles_would_move(served, capsys, monkeypatch):
    async def minutes_pass(seconds: float) -> None:
        served.cluster.clock.advance(60 if seconds else 0)

    monkeypatch.setattr(inspection, "_sleep", minutes_pass)
    monkeypatch.setattr(inspection, "_now", lambda: datetime.fromtimestamp(served.cluster.clock.now(), UTC))
    seen = document(served, capsys, "--for", "2m")
    hits = [sample["pairs"][0]["hits"]["high"]["have"] for sample in seen["samples"]]
    moves = [len(sample["plan"]["moves"]) for sample in seen["samples"]]
    assert hits[:2] == [1, 2]
    assert moves[0] == 0 < moves[1]
    assert main(["inspect", served.urls[0], "--for", "1m"]) == FINE
    assert "2 low hits, 2 high hits; would move" in capsys.readouterr().out


def test_only_gets_are_sent(served, capsys, monkeypatch):
    send, methods = Transport.send, set[str]()

    async def noted(self: Transport, request: Request, broker: str = "") -> BrokerAnswer:
        methods.add(request.method)
        return await send(self, request, broker)

    monkeypatch.setattr(Transport, "send", noted)
    document(served, capsys)
    assert methods == {"GET"}


def test_the_text_names_every_broker_and_the_result(served, capsys):
    assert main(["inspect", served.urls[0]]) == FINE
    said = capsys.readouterr().out
    assert [url for url in served.urls if url.removeprefix("http://") not in said] == []
    assert "if the load does not change, AvgShedder would move" in said
    assert said.endswith("no findings\n")


def test_a_request_that_changes_something_is_not_sent(served):
    async def unload() -> None:
        async with PulsarAdmin(connection_to(served.urls[0], None)) as admin:
            await admin.bundles.unload("acme/orders/0x00000000_0x20000000", (await admin.brokers())[0])

    with pytest.raises(AdminError) as refused:
        asyncio.run(unload())
    assert refused.value.reason is Reason.READ_ONLY


def test_a_cluster_that_cannot_be_read(served, monkeypatch, capsys):
    monkeypatch.setenv("PULSAR_TOKEN", "wrong")
    assert main(["inspect", served.urls[0]]) == UNREADABLE
    said = capsys.readouterr()
    assert (said.out, "[unauthorized]" in said.err, "wrong" in said.err) == ("", True, False)


@pytest.mark.parametrize("where", ["environment", "file"])
def test_the_connection_comes_from_environment_or_file(where, monkeypatch, tmp_path):
    file = tmp_path / "connection.yaml"
    if where == "file":
        file.write_text("credentials_file: /run/secret.json\naudience: urn:pulsar\nread_only: false\n")
    else:
        monkeypatch.setenv("PULSAR_CREDENTIALS_FILE", "/run/secret.json")
        monkeypatch.setenv("PULSAR_AUDIENCE", "urn:pulsar")
    connection = connection_to("http://broker:8080", file if where == "file" else None)
    assert connection.oauth2 is not None
    assert (str(connection.oauth2.credentials_file), connection.oauth2.audience) == ("/run/secret.json", "urn:pulsar")
    assert connection.read_only


def test_a_misspelt_key_is_refused_without_its_value(tmp_path):
    file = tmp_path / "connection.yaml"
    file.write_text("tokem: secret\n")
    with pytest.raises(SettingsError) as refused:
        connection_to("http://broker:8080", file)
    assert "tokem" in refused.value.message
    assert "secret" not in refused.value.message


def test_a_stale_report_is_a_finding(served, capsys):
    served.cluster.faults.add(FaultKind.STALE_LAST_UPDATE, served.cluster.membership.brokers[1].broker_id)
    assert main(["inspect", served.urls[0]]) == FOUND
    assert "[bad_report_time]" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [FaultKind.HUGE_COUNT, FaultKind.NOT_LISTED, FaultKind.GARBAGE])
def test_whatever_brokers_answer_is_read_or_refused(kind, served, capsys):
    served.cluster.faults.add(kind)
    assert main(["inspect", served.urls[0]]) in (FOUND, UNREADABLE)


def test_times_of_the_command_line():
    assert [inspect._to_seconds(text) for text in ("90", "90s", "10m", "1h")] == [90, 90, 600, 3600]


def found(face: RunningCluster, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(face, capsys)["findings"]
    return found


class TestSettingsThatHurt:
    @pytest.fixture
    def spec(self) -> ClusterSpec:
        spec = scenario.spec(brokers=8, bundles=12)
        spec.version = "2.11.4"
        spec.brokers[3] = replace(spec.brokers[3], cores=16)
        spec.configuration = {
            "maxUnloadPercentage": "0.2",
            "loadBalancerDistributeBundlesEvenlyEnabled": "true",
            "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder",
            "loadBalancerLoadPlacementStrategy": "org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate",
            "loadBalancerNamespaceBundleMaxMsgRate": "100",
        }
        return spec

    def test_findings_have_evidence_and_a_command(self, served, capsys):
        seen = document(served, capsys)
        findings = seen["findings"]
        assert all(each["evidence"] and each["fix"] for each in findings)
        by_reason = {each["reason"]: each for each in findings if each["reason"]}
        assert "LeastLongTermMessageRate places by message rate" in by_reason["not_recommended"]["evidence"]
        assert "max_unload_percentage 0.2" in by_reason["not_recommended"]["evidence"]
        assert "4 to 16 cores" in by_reason["not_recommended"]["evidence"]
        assert by_reason["not_recommended"]["fix"].endswith("--config maxUnloadPercentage --value 0.5")
        assert "loadBalancerDistributeBundlesEvenlyEnabled --value false" in by_reason["not_recommended"]["fix"]
        assert "persistent://" in by_reason["no_position"]["evidence"]
        assert "3 bundles for 8 brokers, " in by_reason["few_bundles"]["evidence"]
        assert "pulsar-admin namespaces split-bundle acme/" in by_reason["few_bundles"]["fix"]
        assert "version 2.11.4" in by_reason["old_broker"]["evidence"]
        assert seen["configured"]["shedder"] == "ThresholdShedder"
        assert seen["configured"]["if_it_lasts"] != seen["if_it_lasts"]


def test_a_broker_that_lists_another_load_manager_is_found(served, capsys):
    broker = served.cluster.membership.brokers[2].broker_id
    other = {"loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.SimpleLoadManagerImpl"}
    served.cluster.faults.add(FaultKind.OTHER_CONFIGURATION, broker, values=other)
    (only,) = [each for each in found(served, capsys) if each["reason"] == "brokers_disagree"]
    assert "loadManagerClassName" in only["evidence"]


def test_avgshedder_that_does_not_place_is_found():
    runtime = {
        "loadManagerClassName": "a.ModularLoadManagerImpl",
        "loadBalancerLoadSheddingStrategy": "a.AvgShedder",
        "loadBalancerLoadPlacementStrategy": "a.LeastLongTermMessageRate",
        "loadBalancerEnabled": "true",
        "loadBalancerSheddingEnabled": "true",
    }
    pair = advice.strategy_class_advice(Runtimes("b:1", {"b:1": runtime}, {}))
    assert [each.evidence for each in pair] == ["shedder AvgShedder, placement LeastLongTermMessageRate"]
    assert not list(advice.strategy_class_advice(Runtimes("b:1", {"b:1": runtime | {PLACEMENT: "a.AvgShedder"}}, {})))


PLACEMENT = "loadBalancerLoadPlacementStrategy"


@pytest.mark.parametrize(("held", "crowded"), [(4, False), (5, True)])
def test_partitions_crowded_on_a_broker(held, crowded):
    """Eight partitions on four brokers: two each is even, and twice that is not yet crowded."""
    topics = [
        advice.LoadedTopic(
            f"persistent://t/n/p-partition-{i}", "t/n/0x00000000_0xffffffff", f"b:{0 if i < held else i}", 1, i
        )
        for i in range(8)
    ]
    seen = [each.evidence for each in advice.crowded_partition_advice(topics, 4)]
    assert seen == ([f"persistent://t/n/p: {held} of 8 partitions on b:0"] if crowded else [])


def test_a_topic_is_found_with_its_broker_and_why_it_moves_or_stays(served, capsys):
    plan = document(served, capsys)["if_it_lasts"]
    moved = served.cluster.topology.bundles.index(plan["moves"][0]["bundle"])
    (moves,) = document(served, capsys, "--topic", served.cluster.topology.topics(moved)[0])["topic"]
    assert moves["bundle"] == plan["moves"][0]["bundle"]
    assert moves["broker"] == plan["moves"][0]["from"]
    assert moves["why"] == f"would move to {plan['moves'][0]['to']}"
    assert "msg/s" in moves["load"]
    assert main(["inspect", served.urls[0], "--topic", "persistent://acme/nowhere/t"]) == UNREADABLE


def test_the_page_is_one_file_that_asks_for_nothing(served, capsys, tmp_path):
    file = tmp_path / "page.html"
    seen = document(served, capsys, "--html", str(file))
    with browser() as chromium:
        chromium.open(file.as_uri())
        assert chromium.until("document.querySelector('.plan table')")
        assert chromium.until("document.querySelector('.time svg')")
        said = chromium.text()
        assert (chromium.problems, [url for url in chromium.requests if not url.startswith("data:")]) == (
            [],
            [file.as_uri()],
        )
    assert seen["if_it_lasts"]["moves"][0]["bundle"] in said
