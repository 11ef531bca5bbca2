import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import awaited
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.load import Load

from pulsar_rebalancer.carry_out.split_executor import carry_out_splits
from pulsar_rebalancer.collect.split_candidates import read_candidates
from pulsar_rebalancer.config.field_types import SplitAlgorithm
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.split_planning import Cut, find_cut
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.run.plan import Split, SplitOutcome
from pulsar_rebalancer.run.tables import BUNDLES, table

WHOLE = "0x00000000_0xffffffff"
TOPICS, RATE, LIMIT = 4, 30.0, 40
"""Each topic of a bundle sends that much; two of them are over the limit, so a cut lies between any two."""
ALGORITHMS = [SplitAlgorithm.RANGE, SplitAlgorithm.TOPIC_COUNT, SplitAlgorithm.FLOW, SplitAlgorithm.POSITIONS]
FLOW_DEFAULT = {
    "defaultNamespaceBundleSplitAlgorithm": SplitAlgorithm.FLOW,
    "loadBalancerNamespaceBundleMaxMsgRate": str(LIMIT),
}


@pytest.fixture(scope="module", params=["modular", "extensible"])
def extensible(request: pytest.FixtureRequest) -> bool:
    return str(request.param) == "extensible"


@pytest.fixture(scope="module")
def cluster(
    pulsar_408: Distribution, pulsar_501: Distribution, module_clusters: ClusterFactory, extensible: bool
) -> PulsarCluster:
    # Brokers whose default is the flow algorithm answer it by name; the others are asked for by theirs.
    version = pulsar_501 if extensible else pulsar_408
    return module_clusters(version, 2, bookie=extensible, extensible=extensible, extra=FLOW_DEFAULT)


@pytest.fixture(scope="module")
def loaded(
    cluster: PulsarCluster, admin: Admin, extensible: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Two namespaces of one bundle for each algorithm: one that brokers cut by it, one that is cut as planned."""
    rates: dict[str, float] = {}
    for algorithm in ALGORITHMS:
        for who in ("theirs", "ours"):
            namespace = name(algorithm, who)
            ranges = admin.create_namespace(namespace, 1)
            (topics,) = topics_in_bundles(namespace, ranges, count_of(extensible)).values()
            rates |= dict.fromkeys(topics, RATE)
    with Load(cluster, rates, tmp_path_factory.mktemp("load") / "load.log") as load:
        load.start()
        names = [name(algorithm, who) for algorithm in ALGORITHMS for who in ("theirs", "ours")]
        count = count_of(extensible)
        awaited(lambda: all(flowing(admin, cluster, namespace) >= count for namespace in names))
        yield


def count_of(extensible: bool) -> int:
    """Topics of a namespace: the extensible load manager only cuts in two; two topics have one cut between them."""
    return 2 if extensible else TOPICS


def name(algorithm: SplitAlgorithm, who: str) -> str:
    return f"tests/{algorithm.replace('_', '-')}-{who}"


def flowing(admin: Admin, cluster: PulsarCluster, namespace: str) -> int:
    """How many topics of the namespace have the rate that is sent, as their broker measures it."""
    owner = cluster.broker_ids.index(admin.owner(f"{namespace}/{WHOLE}"))
    stats = admin.get("broker-stats/topics", broker=owner).get(namespace, {}).get(WHOLE, {})
    topics = [topic for domain in stats.values() for topic in domain.values()]
    return sum(abs(topic["msgRateIn"] - RATE) < RATE / 4 for topic in topics)


def bounds(admin: Admin, namespace: str) -> list[int]:
    return [int(bound, 16) for bound in admin.get(f"namespaces/{namespace}/bundles")["boundaries"]]


def computed(cluster: PulsarCluster, admin: Admin, namespace: str, algorithm: SplitAlgorithm, extensible: bool) -> Cut:
    """Where we would cut, from what collect reads of the namespace's bundle."""
    if algorithm is SplitAlgorithm.FLOW:  # brokers cut by their rates of the moment
        awaited(lambda: flowing(admin, cluster, namespace) == count_of(extensible))
    bundle = f"{namespace}/{WHOLE}"
    values: dict[str, Any] = {"topics": TOPICS, "msg_rate_in": 1e6, "broker": admin.owner(bundle)}
    given: dict[str, Any] = {"split_mode": "observe", "max_bundle_msg_rate": LIMIT}
    settings = Settings(**given)

    async def act() -> Cut:
        async with PulsarAdmin(AdminConnection(seeds=(cluster.web_url(0),))) as client:
            sample = table([{"cluster": "c", "bundle": bundle, **values}], BUNDLES)
            (candidate,) = (await read_candidates(client, sample, None, settings)).bundles
        topics = candidate.topics or ()
        if algorithm is SplitAlgorithm.POSITIONS:
            # Between the first and the second topic, and one next to a bound of the range.
            specified = (topics[0].position + 1,)
            found = find_cut(candidate, algorithm, settings, given_positions=specified)
        else:
            found = find_cut(candidate, algorithm, settings)
        assert isinstance(found, Cut), found
        return found

    return asyncio.run(act())


def carried_out(cluster: PulsarCluster, split: Split, seed: int) -> SplitOutcome:
    async def act() -> SplitOutcome:
        async with PulsarAdmin(AdminConnection(seeds=(cluster.web_url(seed),))) as client:
            options: dict[str, Any] = {"max_bundles": 128, "timeout_seconds": 30, "on_outcome": lambda _: None}
            (outcome,) = await carry_out_splits(client.bundles, [split], **options)
            return outcome

    return asyncio.run(act())


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_brokers_cut_where_we_compute_and_do_what_is_planned(
    cluster: PulsarCluster, admin: Admin, algorithm: SplitAlgorithm, extensible: bool
) -> None:
    # their own algorithm
    namespace = name(algorithm, "theirs")
    cut = computed(cluster, admin, namespace, algorithm, extensible)
    positions = list(cut.positions) if algorithm is SplitAlgorithm.POSITIONS else None
    admin.call(
        "PUT",
        f"/admin/v2/namespaces/{namespace}/{WHOLE}/split",
        params={"splitAlgorithmName": algorithm, "unload": "false"},
        json=positions,
    )
    awaited(lambda: len(bounds(admin, namespace)) > 2)
    assert bounds(admin, namespace) == [0, *cut.positions, 0xFFFFFFFF]
    # a split as a plan names it, begun at either broker
    namespace = name(algorithm, "ours")
    cut = computed(cluster, admin, namespace, algorithm, extensible)
    bundle = f"{namespace}/{WHOLE}"
    split = Split(
        bundle=bundle,
        broker=admin.owner(bundle),
        algorithm=algorithm,
        positions=cut.positions,
        shares=cut.shares,
        unload=algorithm is SplitAlgorithm.TOPIC_COUNT,
    )
    outcome = carried_out(cluster, split, seed=ALGORITHMS.index(algorithm) % 2)
    assert (outcome.reason, outcome.found, outcome.attempts) == ("split", cut.positions, 1)
    assert bounds(admin, namespace) == [0, *cut.positions, 0xFFFFFFFF]
    assert len(cut.shares) == len(cut.positions) + 1
    again = carried_out(cluster, split, seed=0)
    assert (again.reason, again.attempts) == ("split", 0)


@pytest.mark.usefixtures("loaded")
def test_brokers_refuse_as_the_executor_expects(cluster: PulsarCluster, admin: Admin) -> None:
    """A range that is gone is left alone; an answer 204 that split nothing is no success."""
    one_topic = "tests/one-topic"
    (ranges,) = admin.create_namespace(one_topic, 1)
    ((topic,),) = topics_in_bundles(one_topic, [ranges], 1).values()
    owner = admin.look_up(topic)
    whole = Split(
        bundle=f"{one_topic}/{WHOLE}",
        broker=owner,
        algorithm=SplitAlgorithm.POSITIONS,
        positions=(0x7FFFFFFF,),
        shares=(0.5, 0.5),
    )

    async def hopeless() -> str:
        async with PulsarAdmin(AdminConnection(seeds=(cluster.web_url(0),))) as client:
            options: dict[str, Any] = {"max_bundles": 128, "timeout_seconds": 1, "on_outcome": lambda _: None}
            (outcome,) = await carry_out_splits(client.bundles, [whole], **options)
            return outcome.reason

    # No position is found.
    assert asyncio.run(hopeless()) == "not_split"
    assert bounds(admin, one_topic) == [0, 0xFFFFFFFF]
    gone = whole.model_copy(update={"bundle": f"{one_topic}/0x00000000_0x40000000"})
    assert carried_out(cluster, gone, 0).reason == "range_gone"
