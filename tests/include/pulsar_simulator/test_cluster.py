from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulsar_simulator.cluster import Cluster
from pulsar_simulator.load import QUIET
from pulsar_simulator.placement import PlacementStrategy
from pulsar_simulator.refusal import Refusal
from pulsar_simulator.scenario import build, spec

FIELDS = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
PERIOD = 60.0


def reports(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {broker: cluster.load_report(broker) for broker in cluster.active_brokers()}


def score(report: dict[str, Any]) -> float:
    parts = ("cpu", "bandwidthIn", "bandwidthOut")
    return max(float(100 * report[part]["usage"] / report[part]["limit"]) for part in parts)


def hot_and_empty(cluster: Cluster) -> tuple[str, str]:
    scores = cluster.true_scores()
    return max(scores, key=lambda b: scores[b]), min(scores, key=lambda b: scores[b])


def busy_bundles(cluster: Cluster, broker: str) -> list[str]:
    """Bundles with traffic, the heaviest first."""
    stats = cluster.load_report(broker)["lastStats"]
    loaded = [bundle for bundle in stats if stats[bundle]["msgRateIn"] > 0]
    return sorted(loaded, key=lambda b: -stats[b]["msgRateIn"])


def topic_of(cluster: Cluster, bundle: str) -> str:
    return cluster.topology.topics(cluster.topology.index(bundle))[0]


def move(cluster: Cluster, bundle: str, destination: str) -> str:
    cluster.unload(bundle, destination)
    return cluster.lookup(topic_of(cluster, bundle))


def idle_bundle(cluster: Cluster, *, owned: bool) -> str:
    active = cluster.traffic.active
    return next(
        bundle
        for i, bundle in enumerate(cluster.topology.bundles)
        if not active[i] and (cluster.owner(bundle) is not None) is owned
    )


# the load


def test_equal_seeds_give_equal_reports_and_other_seeds_others() -> None:
    def story(seed: int, *, curious: bool = False) -> dict[str, dict[str, Any]]:
        cluster = build(seed=seed)
        for _ in range(5):
            cluster.advance(PERIOD)
            if curious:  # reading changes nothing
                reports(cluster)
                cluster.true_scores()
        return reports(cluster)

    assert story(7) == story(7, curious=True)
    assert story(7) != story(8)


def test_rates_are_noisy_from_period_to_period_and_stable_within_one() -> None:
    cluster = build()
    hot, _ = hot_and_empty(cluster)
    first = cluster.load_report(hot)
    cluster.advance(PERIOD / 2)
    assert cluster.load_report(hot) == first
    cluster.advance(PERIOD / 2)
    later = cluster.load_report(hot)
    assert later["msgRateIn"] != first["msgRateIn"]
    assert later["msgRateIn"] == pytest.approx(first["msgRateIn"], rel=0.2)
    assert later["cpu"]["usage"] != first["cpu"]["usage"]


def test_the_sums_of_a_report_are_those_of_its_bundles(cluster: Cluster) -> None:
    for report in reports(cluster).values():
        for field in FIELDS:
            assert report[field] == pytest.approx(sum(s[field] for s in report["lastStats"].values()))
        assert report["bundles"] == list(report["lastStats"])
        assert report["numBundles"] == len(report["bundles"])


def test_usage_stops_at_the_limit() -> None:
    cluster = build(noise=QUIET)
    hot, _ = hot_and_empty(cluster)
    cluster.scale_load(5.0, broker=hot)
    cluster.advance(PERIOD)
    report = cluster.load_report(hot)
    assert cluster.true_scores()[hot] > 100
    for part in ("cpu", "bandwidthIn", "bandwidthOut"):
        assert report[part]["usage"] == report[part]["limit"]


def test_one_hot_broker_one_empty_the_rest_in_between() -> None:
    for seed in range(5):
        scores = sorted(build(seed=seed, noise=QUIET).true_scores().values())
        assert scores[0] < 5
        assert scores[-1] == pytest.approx(85)
        assert all(20 < score < 65 for score in scores[1:-1])


# moves


def test_moving_a_bundle_conserves_the_traffic(cluster: Cluster) -> None:
    hot, empty = hot_and_empty(cluster)
    before = {field: sum(r[field] for r in reports(cluster).values()) for field in FIELDS}
    for bundle in busy_bundles(cluster, hot)[:3]:
        assert move(cluster, bundle, empty) == empty
    cluster.advance(PERIOD)
    for field in FIELDS:
        assert sum(r[field] for r in reports(cluster).values()) == pytest.approx(before[field])


def test_rates_follow_at_the_next_statistics_and_cpu_at_the_next_host_sample() -> None:
    base = spec(brokers=3, bundles=30, noise=QUIET)
    base.timing = replace(base.timing, stats_period=10.0, host_check_period=60.0)
    cluster = Cluster(base)
    hot, empty = hot_and_empty(cluster)
    bundle = busy_bundles(cluster, hot)[0]
    before = reports(cluster)
    move(cluster, bundle, empty)
    assert reports(cluster) == before

    cluster.advance(10)
    middle = reports(cluster)
    assert bundle in middle[empty]["lastStats"]
    assert bundle not in middle[hot]["lastStats"]
    assert middle[empty]["lastBundleGains"] == [bundle]
    assert middle[hot]["lastBundleLosses"] == [bundle]
    assert middle[empty]["cpu"] == before[empty]["cpu"]

    cluster.advance(50)
    after = reports(cluster)
    gained = after[empty]["cpu"]["usage"] - before[empty]["cpu"]["usage"]
    assert gained > 0
    assert before[hot]["cpu"]["usage"] - after[hot]["cpu"]["usage"] == pytest.approx(gained)
    assert after[empty]["bandwidthIn"]["usage"] > 0


def test_half_the_difference_from_hot_to_empty_lowers_the_range(cluster: Cluster) -> None:
    hot, empty = hot_and_empty(cluster)
    before = cluster.true_scores()
    shed(cluster, hot, empty)
    cluster.advance(PERIOD)
    after = cluster.true_scores()
    assert max(after.values()) - min(after.values()) < max(before.values()) - min(before.values())
    assert after[hot] == pytest.approx(after[empty], abs=10)


def shed(cluster: Cluster, source: str, destination: str) -> int:
    """AvgShedder's amount and choice: half the rate difference, heaviest bundles that still fit."""
    rates = {b: r["msgRateIn"] + r["msgRateOut"] for b, r in reports(cluster).items()}
    remaining = (rates[source] - rates[destination]) * 0.5
    stats = cluster.load_report(source)["lastStats"]
    moved = 0
    for bundle in sorted(stats, key=lambda b: -stats[b]["msgRateIn"] - stats[b]["msgRateOut"]):
        rate = stats[bundle]["msgRateIn"] + stats[bundle]["msgRateOut"]
        if 0 < rate <= remaining:
            move(cluster, bundle, destination)
            remaining -= rate
            moved += 1
    return moved


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_avg_shedder_balances_the_scenario_in_a_few_firings(seed: int) -> None:
    cluster = build(seed=seed)
    for _firing in range(6):
        scores = {broker: score(report) for broker, report in reports(cluster).items()}
        order = sorted(scores, key=lambda b: scores[b])
        pairs = [(order[i], order[-1 - i]) for i in range(len(order) // 2)]
        due = [(low, high) for low, high in pairs if scores[high] - scores[low] >= 15]
        if not due:
            break
        for low, high in due:
            shed(cluster, high, low)
        cluster.advance(2 * PERIOD)
    assert max(scores.values()) - min(scores.values()) < 15


# ownership


def test_after_an_unload_nobody_owns_the_bundle_until_the_next_lookup(cluster: Cluster) -> None:
    hot, empty = hot_and_empty(cluster)
    bundle = busy_bundles(cluster, hot)[0]
    cluster.unload(bundle, empty)
    assert cluster.owner(bundle) is None
    assert cluster.lookup(topic_of(cluster, bundle)) == empty
    assert cluster.owner(bundle) == empty


def test_producers_look_a_busy_bundle_up_and_an_idle_one_stays_with_nobody(cluster: Cluster) -> None:
    hot, empty = hot_and_empty(cluster)
    busy, idle = busy_bundles(cluster, hot)[0], idle_bundle(cluster, owned=True)
    cluster.unload(busy, empty)
    cluster.unload(idle, empty)
    cluster.advance(0.2)
    assert cluster.owner(busy) == empty
    cluster.advance(600)
    assert cluster.owner(idle) is None


def test_an_unowned_bundle_remembers_its_destination(cluster: Cluster) -> None:
    idle = idle_bundle(cluster, owned=False)
    hot, _ = hot_and_empty(cluster)
    cluster.unload(idle, hot)
    assert cluster.owner(idle) is None
    assert cluster.lookup(topic_of(cluster, idle)) == hot


def test_a_destination_is_used_once(cluster: Cluster) -> None:
    hot, empty = hot_and_empty(cluster)
    bundle = busy_bundles(cluster, hot)[0]
    move(cluster, bundle, hot)
    cluster.unload(bundle)
    assert cluster.lookup(topic_of(cluster, bundle)) == empty  # the least loaded one


def test_the_owner_as_destination_really_unloads(cluster: Cluster) -> None:
    hot, _ = hot_and_empty(cluster)
    bundle = busy_bundles(cluster, hot)[0]
    cluster.unload(bundle, hot)
    assert cluster.owner(bundle) is None
    assert cluster.lookup(topic_of(cluster, bundle)) == hot


def test_a_new_leader_knows_no_destinations(cluster: Cluster) -> None:
    hot, empty = hot_and_empty(cluster)
    bundle = busy_bundles(cluster, hot)[0]
    cluster.unload(bundle, hot)
    cluster.change_leader(empty)
    assert cluster.lookup(topic_of(cluster, bundle)) == empty


@pytest.mark.parametrize(("by_range", "as_planned"), [(True, False), (False, True)])
def test_equal_ranges_of_two_namespaces(by_range: bool, as_planned: bool) -> None:
    shape = spec(brokers=4, bundles=48, noise=QUIET)
    shape.affinity_by_range = by_range
    cluster = Cluster(shape)
    ids = cluster.active_brokers()
    one, two = "acme/orders/0x00000000_0x15555555", "acme/payments/0x00000000_0x15555555"
    cluster.unload(one, ids[1])
    cluster.unload(two, ids[2])
    assert (cluster.lookup(topic_of(cluster, one)) == ids[1]) is as_planned


def test_random_placement_is_seeded() -> None:
    def places(seed: int) -> list[str]:
        shape = spec(brokers=5, bundles=50, noise=QUIET)
        shape.placement, shape.seed = PlacementStrategy.RANDOM, seed
        cluster = Cluster(shape)
        hot, _ = hot_and_empty(cluster)
        found = []
        for bundle in busy_bundles(cluster, hot)[:8]:
            cluster.unload(bundle)
            found.append(cluster.lookup(topic_of(cluster, bundle)))
        return found

    assert places(3) == places(3)
    assert places(3) != places(4)
    assert len(set(places(3))) > 1


@pytest.mark.parametrize("destination", ["127.0.0.1:1", "localhost:18080"])
def test_an_unknown_destination_is_refused(cluster: Cluster, destination: str) -> None:
    hot, _ = hot_and_empty(cluster)
    with pytest.raises(Refusal, match="inactive destination broker") as caught:
        cluster.unload(busy_bundles(cluster, hot)[0], destination)
    assert caught.value.status == 409


# life and death


def test_a_killed_broker_is_noticed_when_its_session_ends(cluster: Cluster) -> None:
    hot, _ = hot_and_empty(cluster)
    bundles = busy_bundles(cluster, hot)
    cluster.kill(hot)
    cluster.advance(7)
    assert hot in cluster.active_brokers()
    assert cluster.owner(bundles[0]) == hot
    cluster.advance(2)
    assert hot not in cluster.active_brokers()
    with pytest.raises(Refusal, match="inactive destination"):
        cluster.unload(bundles[0], hot)
    assert all(cluster.owner(bundle) not in (None, hot) for bundle in bundles)


def test_a_dead_leader_is_replaced_and_does_not_come_back(cluster: Cluster) -> None:
    first = str(cluster.state()["leader"])
    cluster.kill(first)
    assert cluster.state()["leader"] == first
    cluster.advance(9)
    assert cluster.state()["leader"] not in (None, first)
    cluster.start_broker(first)
    assert cluster.state()["leader"] != first
    assert first in cluster.active_brokers()


def test_a_restarted_broker_looks_idle_until_its_first_sample(cluster: Cluster) -> None:
    hot, _ = hot_and_empty(cluster)
    before = cluster.load_report(hot)
    cluster.advance(1)
    cluster.restart(hot)
    report = cluster.load_report(hot)
    assert report["startTimestamp"] == int(cluster.clock.now() * 1000)
    assert report["startTimestamp"] - before["startTimestamp"] == 3_601_000
    assert score(report) < 0.01
    assert report["bandwidthIn"]["usage"] == 0
    assert report["msgRateIn"] == 0
    assert len(report["bundles"]) == 1  # its heartbeat
    cluster.advance(60)  # statistics came at 60 s, its own host sample comes at 61 s after the start of time
    assert cluster.load_report(hot)["cpu"]["usage"] > 1


def test_last_update_is_a_metadata_write(cluster: Cluster) -> None:
    hot, empty = hot_and_empty(cluster)
    written = cluster.load_report(hot)["lastUpdate"]
    cluster.advance(14 * 60)
    assert cluster.load_report(hot)["lastUpdate"] == written
    cluster.advance(60)
    assert cluster.load_report(hot)["lastUpdate"] == written + 15 * 60_000
    shed(cluster, hot, empty)
    cluster.advance(60)
    assert cluster.load_report(hot)["lastUpdate"] == written + 16 * 60_000


def test_time_does_not_run_backwards(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        cluster.advance(-1)


@pytest.mark.parametrize(("brokers", "bundles"), [(1, 10), (4, 3)])
def test_a_scenario_needs_brokers_and_bundles(brokers: int, bundles: int) -> None:
    with pytest.raises(ValueError, match="2 brokers and a bundle for each"):
        build(brokers=brokers, bundles=bundles)
