"""Brokers under the extensible load manager: recorded answers of real ones, and the reports built from them.

Listening itself is tested on real brokers; here a list holds the messages.
"""

import asyncio
import itertools
import json
import math
import sys
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_rebalancer.collect import extensible_reports, load_data
from pulsar_rebalancer.collect.extensible_reports import read_load_reports
from pulsar_rebalancer.collect.load_data import LOAD, TOP, TopicMessage, receive_messages
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError, SettingsError
from pulsar_rebalancer.pulsar import AdminConnection
from pulsar_rebalancer.pulsar.tokens import Tokens
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import LOAD_DATA_FILE
from pulsar_rebalancer.storage.path import StoragePath

SAMPLE = json.loads((Path(__file__).parent / "data" / "extensible-4.0.8.json").read_text())
METRICS, TOPICS = SAMPLE["broker-stats/metrics"], SAMPLE["broker-stats/topics"]
PUBLISHED, TOP_BUNDLES = SAMPLE["loadbalancer-broker-load-data"], SAMPLE["loadbalancer-top-bundles-load-data"]
RANKS = {entry["bundleName"]: rank for rank, entry in enumerate(TOP_BUNDLES["topBundlesLoadData"])}
STATS = load_data.bundle_stats(TOPICS)
NOW = datetime(2026, 11, 21, 17, 12, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)
MANAGERS = "org.apache.pulsar.broker.loadbalance"
EXTENSIBLE = {"loadManagerClassName": f"{MANAGERS}.extensions.ExtensibleLoadManagerImpl"}
MODULAR = {"loadManagerClassName": f"{MANAGERS}.impl.ModularLoadManagerImpl"}
A, B = "broker-a:8080", "broker-b:8080"
AVERAGE = PUBLISHED["msgThroughputEMA"]
NO_FIGURES = [group for group in METRICS if "jvm_start_time" in group["metrics"]]


def published(*, age_s=0.0, factor=1.0, **changes):
    rates = {name: factor * sum(stats[name] for stats in STATS.values()) for name in load_data.RATE_FIELDS}
    return PUBLISHED | rates | {"updatedAt": NOW_MS - age_s * 1000} | changes


def metrics_from(host):
    labels = ({**group["dimensions"]} for group in METRICS)
    named = (each | {"broker": host} if "broker" in each else each for each in labels)
    return [group | {"dimensions": each} for group, each in zip(METRICS, named, strict=True)]


def message(topic, document, *, broker=A, age_s=0.0):
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return topic, TopicMessage(broker, round(NOW_MS - age_s * 1000), data)


@dataclass
class Brokers:
    heard: list[tuple[str, Any]] = field(default_factory=list)
    metrics_of: dict[str, Any] = field(default_factory=dict)
    owned_by: dict[str, Any] = field(default_factory=dict)
    connection: AdminConnection = field(default_factory=lambda: AdminConnection(seeds=("http://broker-a:8080",)))
    url: str = "pulsar://broker-a:6650"
    asked: list[str] = field(default_factory=list)
    listened: int = 0
    enough: bool = False

    @property
    def bundles(self):
        return self

    async def load_reports(self, brokers, read):
        return {broker: read(broker, {"brokerId": broker, "lastStats": {}}) for broker in brokers}

    async def metrics(self, broker):
        self.asked.append(f"metrics {broker}")
        found = self.metrics_of.get(broker) or metrics_from(broker.rpartition(":")[0])
        if isinstance(found, AdminError):
            raise found
        return found

    async def topic_stats(self, broker):
        self.asked.append(f"topics {broker}")
        return TOPICS

    async def owned_bundles(self, broker):
        return self.owned_by.get(broker, set(STATS))

    async def version(self, broker):
        return "4.0.8"

    async def service_url(self, topic):
        assert topic == LOAD
        return self.url

    @property
    def tokens(self):
        return Tokens(self.connection)

    def receive(self, connection, tokens, service_url, topics, seconds):
        assert connection is self.connection
        self.listened += 1
        self.enough = False
        while self.heard and not self.enough:
            topic, said = self.heard.pop(0)
            self.enough = topics[topic](said)


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """One run; what was heard is kept from run to run."""

    seconds = itertools.count()
    monkeypatch.setattr(extensible_reports, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))

    def run(brokers, runtimes=None, *, keep=True, **settings):
        monkeypatch.setattr(load_data, "receive_messages", brokers.receive)
        state = StoragePath(str(tmp_path / "state"))
        asked = runtimes or {A: EXTENSIBLE}
        reading = read_load_reports(brokers, asked, Settings(**settings), now=NOW, state_folder=state, store=keep)
        return asyncio.run(reading)

    return run


def row(report):
    return report.broker_columns


def ranks(report):
    return {row["bundle"]: row["top_rank"] for row in report.rows.to_pylist() if row["top_rank"] is not None}


def test_a_bundle_is_the_sum_of_its_topics():
    assert set(STATS) == {f"{namespace}/{bundle}" for namespace, ranges in TOPICS.items() for bundle in ranges}
    assert STATS["pulsar/system/0x40000000_0x50000000"] == {
        **dict.fromkeys(load_data.RATE_FIELDS, 0.0),
        "topics": 1,
        "producerCount": 3,
        "consumerCount": 3,
    }
    busy = "acme/shop/0xf0000000_0xffffffff"
    ((domain, topics),) = ((d, t) for d, t in TOPICS["acme/shop"]["0xf0000000_0xffffffff"].items() if t)
    ((name, topic),) = topics.items()
    assert STATS[busy]["msgRateIn"] == topic["msgRateIn"] > 0
    assert (STATS[busy]["topics"], STATS[busy]["producerCount"], STATS[busy]["consumerCount"]) == (1, 1, 1)
    double = load_data.bundle_stats({"acme/shop": {"0xf0000000_0xffffffff": {domain: {name: topic, "t2": topic}}}})
    assert double[busy] == {name: 2 * value for name, value in STATS[busy].items()}


@pytest.mark.parametrize("damage", [None, "fast", True])
def test_a_damaged_rate_is_not_taken_for_none(damage):
    topics = deepcopy(TOPICS["acme/shop"])
    (topic,) = topics["0xf0000000_0xffffffff"]["non-persistent"].values()
    topic["msgRateIn"] = damage
    found = load_data.bundle_stats(
        {"acme/shop": topics, "acme/none": "?", "acme/empty": {"0x0_0x1": {"persistent": {}}}}
    )
    assert math.isnan(found["acme/shop/0xf0000000_0xffffffff"]["msgRateIn"])
    assert {name.rpartition("/")[0] for name in found} == {"acme/shop"}


def test_a_broker_that_was_never_heard_says_enough_itself(ask):
    found = row(ask(Brokers())[A])
    assert (found["last_update"], found["report_age_seconds"]) == (NOW + timedelta(seconds=1), 0)
    assert found["started_at"] == datetime(2026, 11, 21, 16, 56, 17, 625000, tzinfo=UTC)
    assert (found["host_samples"], found["version"]) == (15.0, "4.0.8")
    assert (found["cpu_usage"], found["cpu_limit"]) == (82.90832, 100)
    assert (found["load_average"], found["throughput_average"]) == (0.8315470528738803, None)
    assert found["msg_rate_in"] == pytest.approx(sum(stats["msgRateIn"] for stats in STATS.values()))
    assert (found["bundles"], found["topics"]) == (4, 4)


def test_published_load_serves_runs_that_hear_nothing(ask):
    brokers = Brokers([message(TOP, TOP_BUNDLES), message(LOAD, published())])
    for heard in (True, False):
        report = ask(brokers)[A]
        found = row(report)
        assert (found["cpu_usage"], found["cpu_limit"]) == (pytest.approx(82.90832 * 2), 200)
        assert (found["memory_limit"], found["report_age_seconds"]) == (247.5, 0)
        assert (found["load_average"], found["throughput_average"]) == (0.8315470528738803, AVERAGE)
        assert ranks(report) == RANKS
        assert brokers.enough is heard
    assert brokers.listened == 2


@pytest.mark.parametrize(
    ("kept", "threshold", "average"),
    [
        (published(age_s=900), "10", AVERAGE),
        (published(age_s=1000), "10", None),  # brokers publish every 15 minutes at the latest
        (published(factor=0.92), "10", AVERAGE),
        (published(factor=0.90), "10", None),  # a larger change than a broker keeps to itself
        (published(factor=1.2), "10", None),
        (published(factor=0.90), "20", AVERAGE),
        (published(factor=0.0), "10", None),
        (published(updatedAt="today"), "10", None),
    ],
)
def test_an_average_counts_while_no_newer_one_can_have_been_published(ask, kept, threshold, average):
    runtimes = {A: EXTENSIBLE | {"loadBalancerReportUpdateThresholdPercentage": threshold}}
    brokers = Brokers([message(LOAD, kept)])
    assert row(ask(brokers, runtimes)[A])["throughput_average"] == AVERAGE  # heard just now
    assert row(ask(brokers, runtimes)[A])["throughput_average"] == average
    assert row(ask(brokers, runtimes)[A])["cpu_limit"] == 200


@pytest.mark.parametrize(
    ("further", "found"),
    [
        ([], RANKS),
        ([message(TOP, b"")], {}),  # taken back: a bundle comes or goes
        ([message(TOP, b"", broker=B)], RANKS),
        ([message(TOP, b"no JSON")], {}),
        ([message(TOP, {"topBundlesLoadData": [{"bundleName": "acme/shop/0x00000000_0x10000000"}]})], {}),  # has left
    ],
)
def test_top_bundles_count_until_others_are_published(ask, further, found):
    ask(Brokers([message(TOP, TOP_BUNDLES)]))
    report = ask(Brokers(further))[A]
    assert ranks(report) == found
    assert ranks(ask(Brokers())[A]) == found


def test_brokers_are_asked_by_their_load_manager(ask):
    error = AdminError(Reason.UNREACHABLE, "no connection")
    runtimes = {A: EXTENSIBLE, B: MODULAR, "broker-c:8080": EXTENSIBLE}
    found = ask(Brokers(metrics_of={"broker-c:8080": error}), runtimes)
    assert (found[B].broker_names, found[B].rows.num_rows) == ((B,), 0)
    assert (found[A].broker_names, found[A].rows.num_rows) == ((A,), len(STATS))
    assert found["broker-c:8080"] is error


@pytest.mark.parametrize(
    ("broker", "host", "reason"),
    [
        (A, "broker-b", "wrong_broker"),
        (A, "stranger", "wrong_broker"),
        (A, "BROKER-A.", None),
        ("[::1]:8080", "::1", None),
        (A, 5, None),
    ],
)
def test_metrics_of_another_broker_are_not_taken_for_its_own(ask, broker, host, reason):
    found = ask(Brokers(metrics_of={broker: metrics_from(host)}), {broker: EXTENSIBLE})[broker]
    assert getattr(found, "reason", None) == reason


HEARTBEAT = "pulsar/broker-a:8080/0x00000000_0xffffffff"


@pytest.mark.parametrize(
    ("owned", "reason"),
    [
        ({"acme/other/0x00000000_0xffffffff"}, "wrong_broker"),
        ({"acme/other/0x00000000_0xffffffff", next(iter(STATS))}, None),  # some have moved since
        ({HEARTBEAT}, None),  # drained
        (set(), None),
    ],
)
def test_topics_of_another_broker_are_not_taken_for_its_own(ask, owned, reason):
    found = ask(Brokers(owned_by={A: owned}))[A]
    assert getattr(found, "reason", None) == reason
    assert not load_data.are_other_brokers_stats([next(iter(STATS))], owned), "a single bundle may have been exchanged"


@pytest.mark.parametrize(
    ("stats", "owned"),
    [
        ({HEARTBEAT, "t/n/0x0_0x8"}, {HEARTBEAT, "t/n/0x8_0xf"}),  # the one bundle was exchanged
        ({HEARTBEAT, "t/n/0x0_0x4", "t/n/0x4_0x8"}, {HEARTBEAT, "t/n/0x8_0xf"}),  # all were, and it is the same broker
        ({HEARTBEAT, "t/n/0x0_0x8"}, {"t/n/0x8_0xf"}),
    ],
)
def test_heartbeats_tell_a_broker_and_are_no_bundle_that_moves(stats, owned):
    assert not load_data.are_other_brokers_stats(stats, owned)


def test_without_metrics_what_was_published_counts_by_its_age(ask):
    brokers = Brokers(metrics_of={A: NO_FIGURES})
    assert ask(brokers)[A] is None
    brokers.heard = [message(LOAD, published(age_s=30))]
    found = row(ask(brokers)[A])
    assert (found["report_age_seconds"], found["cpu_usage"]) == (31, PUBLISHED["cpu"]["usage"])
    assert found["load_average"] == PUBLISHED["weightedMaxEMA"]


def test_listening_ends_once_nothing_is_missing(ask):
    runtimes = {A: EXTENSIBLE, B: EXTENSIBLE}
    said = [message(topic, document, broker=broker) for broker in (A, B) for topic, document in DOCUMENTS]
    brokers = Brokers([*said, message(TOP, TOP_BUNDLES, broker="stranger:8080")])
    ask(brokers, runtimes)
    assert brokers.enough
    assert len(brokers.heard) == 1
    brokers.heard = [message(TOP, TOP_BUNDLES, broker=broker) for broker in (A, B)]
    ask(brokers, runtimes)
    assert brokers.enough, "load data that was kept need not be heard again"


DOCUMENTS = ((LOAD, published()), (TOP, TOP_BUNDLES))


def test_nobody_listens_who_was_told_not_to(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "pulsar", None)
    brokers = Brokers()
    report = ask(brokers, listen_seconds=0)[A]
    assert brokers.listened == 0
    assert row(report)["load_average"] > 0


def test_a_missing_client_is_said(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "pulsar", None)
    with pytest.raises(AdminError, match="pulsar-client cannot be loaded") as missing:
        ask(Brokers())
    assert missing.value.reason == "wrong_setting"
    assert ask(Brokers(), {B: MODULAR})[B].broker_names == (B,)


def test_a_token_that_came_over_tls_stays_there(ask):
    secure = AdminConnection(seeds=("https://broker-a:8443",))
    with pytest.raises(SettingsError, match="does not use TLS"):
        ask(Brokers(connection=secure))
    assert ask(Brokers(connection=secure, url="pulsar+ssl://broker-a:6651"))[A]


@pytest.mark.parametrize("url", ["garbage", "pulsar://[::1]:6650"])
def test_an_address_that_the_client_cannot_take_is_a_bad_answer(url):
    connection = AdminConnection(seeds=("http://broker-a:8080",))
    with pytest.raises(AdminError) as refused:
        receive_messages(connection, Tokens(connection), url, {}, 1.0)
    assert refused.value.reason == "bad_answer"


def test_brokers_that_left_are_forgotten_and_a_damaged_file_is_heard_anew(ask, tmp_path):
    file = tmp_path / "state" / LOAD_DATA_FILE
    ask(Brokers([message(LOAD, published(), broker=B)]), {A: EXTENSIBLE, B: EXTENSIBLE})
    assert list(json.loads(file.read_text())["load"]) == [B]
    ask(Brokers())
    assert json.loads(file.read_text()) == {"version": 1, "load": {}, "top": {}}
    for damaged in ("{", "[]", '{"version": 2}', '{"version": 1, "load": {"a": 1}}'):
        file.write_text(damaged)
        assert row(ask(Brokers([message(LOAD, published())]))[A])["throughput_average"] == AVERAGE
    ask(Brokers([message(LOAD, b'{"cpu": NaN}')]))
    assert json.loads(file.read_text())["load"] == {}


def test_a_run_that_only_shows_reads_what_is_kept_and_writes_nothing(ask, tmp_path):
    ask(Brokers([message(LOAD, published())]))
    file = tmp_path / "state" / LOAD_DATA_FILE
    before = file.read_text()
    assert row(ask(Brokers(), keep=False)[A])["throughput_average"] == AVERAGE
    ask(Brokers([message(LOAD, b'{"cpu": NaN}')]), keep=False)
    assert file.read_text() == before
