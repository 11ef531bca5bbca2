"""Clusters under the extensible load manager: what its brokers tell, and moves by its transfer protocol."""

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import jwt
import pytest
from pydantic import SecretStr
from tests.certificates import Authority
from tests.integration.airflow_world import World, dags
from tests.integration.conftest import _database, one_session  # noqa: F401 - fixtures
from tests.patience import awaited
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import SUPER_USER, PulsarCluster
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import Run
from tests.pulsar.rebalancing import connection as airflow_connection
from tests.token_issuer import AUDIENCE, CLIENT, TokenIssuer, token_issuer

from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.collect import load_data
from pulsar_rebalancer.collect.collector import EarlierData, RunTrigger, Sample, collect_sample
from pulsar_rebalancer.collect.load_data import TopicMessage
from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar import AdminConnection, OAuth2, PulsarAdmin
from pulsar_rebalancer.pulsar.tokens import Tokens
from pulsar_rebalancer.run.outcome import MoveOutcome
from pulsar_rebalancer.run.plan import Move
from pulsar_rebalancer.storage.documents import ClusterStorage

NAMESPACE, BUNDLES = "tests/load", 16
RATE = 4000.0
TOP = 10  # top bundles that a broker publishes
OTHER_AUDIENCE = "urn:pulsar:west"
PROVIDERS = "org.apache.pulsar.broker.authentication"
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    "strategy": Strategy.TRANSFER,
    "target_std": 0.002,
    "hit_count_transfer": 0,
    "listen_seconds": 20,
}


@pytest.fixture(scope="module")
def issuing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    with token_issuer(tmp_path_factory.mktemp("issuer"), audiences=(AUDIENCE, OTHER_AUDIENCE)) as found:
        yield found


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of certificates that brokers accept from clients."""
    return Authority(tmp_path_factory.mktemp("clients"), "clients")


@pytest.fixture(scope="module")
def cluster(
    pulsar_408: Distribution, module_clusters: ClusterFactory, issuing: TokenIssuer, clients: Authority
) -> PulsarCluster:
    """Three brokers with TLS and a control group each, which take tokens, an issuer's tokens, and certificates."""
    providers = ("AuthenticationProviderToken", "oidc.AuthenticationProviderOpenID", "AuthenticationProviderTls")
    extra = {
        "authenticationProviders": ",".join(f"{PROVIDERS}.{name}" for name in providers),
        "superUserRoles": f"{SUPER_USER},{CLIENT}",
        "openIDAllowedTokenIssuers": issuing.url,
        "openIDAllowedAudiences": AUDIENCE,
        "openIDTokenIssuerTrustCertsFilePath": str(issuing.ca_file),
        "tlsTrustCertsFilePath": str(clients.file),
    }
    options: dict[str, Any] = {"auth": True, "tls": True, "plain": False, "cgroups": True, "extra": extra}
    started = module_clusters(pulsar_408, bookie=True, extensible=True, **options)
    assert started.ca_file
    with issuing.ca_file.open("ab") as both:  # one file for the brokers' authority and the issuer's
        both.write(started.ca_file.read_bytes())
    return started


@pytest.fixture(scope="module")
def loaded(cluster: PulsarCluster, admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The topic of each bundle with traffic; all are on broker 0, and show in its average.

    The other brokers have a bundle each, with little traffic: an idle one publishes its load data once a minute.
    """
    busy, rates = {}, {}
    ranges = admin.create_namespace(NAMESPACE, BUNDLES)
    for number, (bundle_range, (topic,)) in enumerate(topics_in_bundles(NAMESPACE, ranges, 1).items()):
        home = number if number in (1, 2) else 0
        if not home:
            busy[f"{NAMESPACE}/{bundle_range}"] = topic
        rates[topic] = 20.0 if home else RATE / (BUNDLES - 2)
        if admin.look_up(topic) != cluster.broker_ids[home]:
            admin.unload(NAMESPACE, bundle_range, home)
    log = tmp_path_factory.mktemp("load") / "load.log"
    with Load(cluster, rates, log, batching=False) as load:
        load.start()
        awaited(lambda: load_average(admin, 0) > 1.3 * max(load_average(admin, 1), load_average(admin, 2)), pause=1)
        yield busy


def load_average(admin: Admin, broker: int) -> float:
    """As the broker says itself; it looks at its host once a minute."""
    for group in admin.get("broker-stats/metrics", broker=broker):
        if group["dimensions"].get("feature") == "max_ema":
            return float(group["metrics"]["brk_lb_resource_usage"])
    raise AssertionError(f"broker {broker} gives no moving average")


def connection(cluster: PulsarCluster, token: str | None = None, **credentials: Any) -> AdminConnection:
    credentials = credentials or {"token": SecretStr(token or cluster.admin_token or "")}
    return AdminConnection(seeds=(cluster.web_url(0),), ca_file=cluster.ca_file, connect_timeout_s=15, **credentials)


def by_issuer(cluster: PulsarCluster, issuing: TokenIssuer, audience: str = AUDIENCE) -> AdminConnection:
    oauth2 = OAuth2(credentials_file=issuing.credentials_file(), audience=audience)
    return replace(connection(cluster, oauth2=oauth2), ca_file=issuing.ca_file)


async def sample(client: PulsarAdmin, storage: ClusterStorage, **settings: Any) -> Sample:
    given = SETTINGS | settings
    entry = ClusterEntry(name="real", given=given, settings=Settings(**given))
    now = datetime.now(UTC)
    return await collect_sample(client, entry, RunTrigger(now, "test"), EarlierData(storage.state))


def threads() -> set[str]:
    return {task.name for task in Path("/proc/self/task").iterdir()}


def test_listening_needs_the_right_and_leaves_nothing_behind(
    cluster: PulsarCluster, issuing: TokenIssuer, clients: Authority, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a token, with one of the issuer, with a certificate and no token; the admin REST API takes each too."""
    before = threads()
    heard: list[TopicMessage] = []

    def take(message: TopicMessage) -> bool:
        heard.append(message)
        return True

    topics = {load_data.LOAD: take, load_data.TOP: take}

    async def listen(to: AdminConnection) -> list[str]:
        async with PulsarAdmin(to) as client:
            # Each broker gets the issuer's keys with the first token that it sees.
            versions = [await client.version(broker) for broker in await client.brokers()]
            await asyncio.to_thread(load_data.receive_messages, to, client.tokens, cluster.service_url, topics, 60)
            return versions

    certificate, key = clients.issue(SUPER_USER)
    by_certificate = connection(cluster, client_cert_file=certificate, client_key_file=key)
    for number, to in enumerate((connection(cluster), by_issuer(cluster, issuing), by_certificate), 1):
        assert asyncio.run(listen(to)) == ["4.0.8"] * 3
        assert [message.broker in cluster.broker_ids for message in heard] == [True] * number
    without = connection(cluster, cluster.app_token)
    with pytest.raises(AdminError, match=r"system topics of .* cannot be read: AuthorizationError") as refused:
        load_data.receive_messages(without, Tokens(without), cluster.service_url, topics, 60)
    assert refused.value.reason == "forbidden"
    awaited(lambda: threads() <= before)
    assert capfd.readouterr() == ("", "")


def in_all(admin: Admin, loaded: dict[str, str]) -> list[float]:
    """What the topics say that they receive together, msg/s; nothing while one of them has no broker."""
    try:
        return [sum(admin.get(f"{topic.replace('://', '/')}/stats")["msgRateIn"] for topic in loaded.values())]
    except httpx.HTTPError:
        return []


@pytest.mark.usefixtures("one_session")
def test_brokers_that_give_no_report_are_balanced_by_a_run_of_the_dag(
    cluster: PulsarCluster, admin: Admin, issuing: TokenIssuer, loaded: dict[str, str], tmp_path: Path
) -> None:
    """With tokens of the issuer that last some seconds."""
    with pytest.raises(httpx.HTTPStatusError, match="UnsupportedOperationException"):
        admin.load_report(0)
    awaited(lambda: uptime_minutes(admin, 2) > 2, pause=1)  # a broker without two host samples takes no part
    sent = in_all(admin, loaded)
    assert sent
    settings = SETTINGS | {"strategy": str(Strategy.TRANSFER), "interval_seconds": 86400}
    settings["host_usage_interval_minutes"] = 1
    issuing.lifetime, issued = 10, len(issuing.issued)
    to = airflow_connection(cluster, issuing.extra())
    ended = Event()

    def listen() -> None:
        while not ended.wait(2):
            sent.extend(in_all(admin, loaded))

    with dags("extensible", tmp_path, to, **settings) as root, ThreadPoolExecutor(1) as listening:
        listening.submit(listen)
        try:
            outcome = World("extensible", root).run()
        finally:
            ended.set()
    run = Run(outcome.state, outcome.states, outcome.xcom("collect"))
    owners = {move.bundle: admin.owner(move.bundle) for move in run.moves}

    assert run.state == "success", run.tasks
    assert len(issuing.issued) > issued + 1
    (facts,) = run.table("cluster")
    assert (facts["load_manager"], facts["brokers_reported"]) == ("ExtensibleLoadManagerImpl", 3)
    assert facts["builtin_shedding"] is False
    brokers = {row["broker"]: row for row in run.table("brokers")}
    assert sorted(brokers) == sorted(cluster.broker_ids)
    for row in brokers.values():
        assert row["error"] is None
        assert (row["report_age_seconds"], row["version"]) == (0, "4.0.8")
        assert row["load_average"] > 0
        assert row["throughput_average"] > 0
    assert max(brokers, key=lambda name: brokers[name]["load_average"]) == cluster.broker_ids[0]
    bundles = run.table("bundles")
    held = {row["bundle"]: row for row in bundles if row["broker"] == cluster.broker_ids[0]}
    assert loaded.keys() <= held.keys()
    # A busy machine sends less than was asked for, unevenly, and catches up: what the topics said meanwhile counts.
    received = sum(held[name]["msg_rate_in"] for name in loaded)
    assert min(sent) / 2 < received < 2 * max(sent)
    assert sorted(r for name in loaded if (r := held[name]["top_rank"]) is not None) == list(range(TOP))
    assert {row["owners"] for row in bundles} == {1}

    moves = run.moves
    assert moves, run.summary.sentence
    assert cluster.broker_ids[0] in {move.source for move in moves}
    assert owners == {move.bundle: move.destination for move in moves}
    assert run.outcome.move_counts == {"moved": len(moves)}
    again = asyncio.run(carried_out(cluster, moves))
    assert [outcome.reason for outcome in again] == ["already_there"] * len(moves)


def uptime_minutes(admin: Admin, broker: int) -> float:
    """Minutes since a broker started, as its metrics say."""
    (process,) = [
        group for group in admin.get("broker-stats/metrics", broker=broker) if "jvm_start_time" in group["metrics"]
    ]
    return (time.time() - float(process["metrics"]["jvm_start_time"]) / 1000) / 60


async def carried_out(cluster: PulsarCluster, moves: list[Move]) -> list[MoveOutcome]:
    """Carry moves out once more, as a retry of their wave does."""
    async with PulsarAdmin(connection(cluster)) as client:
        return await carry_out_moves(
            client.bundles, moves, concurrency=2, timeout_seconds=30, on_outcome=lambda _: None
        )


def test_unloads_that_the_transfer_protocol_refuses(
    cluster: PulsarCluster, admin: Admin, loaded: dict[str, str]
) -> None:
    bundle = min(loaded)
    owner = admin.owner(bundle)

    async def refused(destination: str) -> AdminError:
        async with PulsarAdmin(connection(cluster)) as client:
            with pytest.raises(AdminError) as error:
                await client.bundles.unload(bundle, destination)
        return error.value

    assert "cannot be transfer to same broker" in asyncio.run(refused(owner)).message
    assert asyncio.run(refused("127.0.0.1:1")).reason == "destination_gone"
    assert admin.owner(bundle) == owner


def with_clients(admin: Admin, loaded: dict[str, str]) -> list[str]:
    """Bundles whose topic somebody publishes to: on a busy machine, clients take minutes to find a moved topic."""
    found = []
    for bundle, topic in loaded.items():
        with suppress(httpx.HTTPError):
            if admin.get(f"{topic.replace('://', '/')}/stats")["publishers"]:
                found.append(bundle)
    return found


def test_a_wave_outlasts_two_tokens(
    cluster: PulsarCluster, admin: Admin, issuing: TokenIssuer, loaded: dict[str, str]
) -> None:
    """They expire before the issuer says so: brokers refuse them in the middle, and each is replaced."""
    awaited(lambda: len(with_clients(admin, loaded)) > 5, pause=1)
    owners = {bundle: admin.owner(bundle) for bundle in with_clients(admin, loaded)}
    others = {owner: next(broker for broker in cluster.broker_ids if broker != owner) for owner in owners.values()}
    moves = [
        Move(bundle=bundle, source=owner, destination=others[owner], wave=0, traffic=1.0, measure="rate")
        for bundle, owner in owners.items()
    ]
    issuing.lifetime, issuing.promised, issuing.issued = 4, 300, []

    def outlive(_: object) -> None:
        if len(issuing.issued) < 3:
            expires = jwt.decode(issuing.issued[-1], options={"verify_signature": False})["exp"]
            while time.time() <= expires:
                time.sleep(0.1)

    async def go() -> list[MoveOutcome]:
        async with PulsarAdmin(by_issuer(cluster, issuing)) as client:
            return await carry_out_moves(client.bundles, moves, concurrency=1, timeout_seconds=30, on_outcome=outlive)

    ends = asyncio.run(go())
    # A client that a busy machine keeps from coming back leaves its bundle without a topic, which needs no move.
    assert {(end.reason, end.attempts) for end in ends} <= {("moved", 1), ("no_topic", 0)}, ends
    moved = {end.bundle: end.destination for end in ends if end.reason == "moved"}
    assert len(moved) > 3
    assert {bundle: admin.owner(bundle) for bundle in moved} == moved
    assert len(issuing.issued) >= 3
