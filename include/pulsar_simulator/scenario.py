"""Example clusters in which one broker is hot, one is empty, and the others are in between."""

from __future__ import annotations

import numpy as np

from pulsar_simulator.brokers import BrokerSpec
from pulsar_simulator.cluster import Cluster, ClusterSpec
from pulsar_simulator.load import NOBODY, Floats, Noise, Traffic, assign_bundles
from pulsar_simulator.sampling import Timing
from pulsar_simulator.timeline import Clock
from pulsar_simulator.topology import Namespace, Topology

HOT_SCORE = 85.0
"""Score of the hot broker if no other is given, in percent."""

_MIDDLE_SCORES = (25.0, 62.0)
_IDLE_SHARE = 0.04  # of all bundles: no producers, some of them without owner
_MAX_BUNDLES = 128  # per namespace, Pulsar's default maximum
_NAMESPACES = ("acme/orders", "acme/payments", "globex/clicks", "globex/metrics")
_FIRST_PORT = 18080


def spec(
    *,
    brokers: int = 8,
    bundles: int = 200,
    seed: int = 1,
    noise: Noise | None = None,
    timing: Timing | None = None,
    hot_score: float = HOT_SCORE,
    scalable: bool = False,
) -> ClusterSpec:
    """Return the specification of a cluster that AvgShedder balances in a few rounds of shedding.

    With thresholds of 15 and 40, and hit counts of 8 and 2, the score range then falls below 15 points.

    Args:
        brokers: number of brokers, at least 2.
        bundles: total number of bundles in all namespaces, at least the number of brokers.
        seed: seed for all random numbers.
        noise: random variation of the load; `Noise()` by default.
        timing: periods of the brokers; `Timing()` by default.
        hot_score: score of the hot broker before noise, in percent.
        scalable: True if every second topic of a bundle is a segment of a scalable topic.

    Raises:
        ValueError: there are too few brokers or bundles, or the hot score is out of range.
    """
    if not _MIDDLE_SCORES[1] <= hot_score <= 100:
        raise ValueError(f"the hot score must be from {_MIDDLE_SCORES[1]:g} to 100 percent, got {hot_score:g}")
    if brokers < 2 or bundles < brokers:
        raise ValueError(
            f"expected at least 2 brokers and at least as many bundles, got {brokers} brokers and {bundles} bundles"
        )
    timing = timing or Timing()
    noise = noise or Noise()
    specs = [BrokerSpec(f"127.0.0.1:{_FIRST_PORT + i}") for i in range(brokers)]
    topology = Topology(_namespaces(bundles, scalable=scalable))
    random = np.random.default_rng((seed, 0))
    weights = np.exp(0.8 * random.standard_normal(bundles)).clip(0.2, 4.0)
    msg_size = 1024 * np.exp(0.4 * random.standard_normal(bundles))
    fan_out = random.choice([0.0, 1.0, 1.0, 2.0], bundles)
    idle = random.permutation(bundles)[: min(int(_IDLE_SHARE * bundles), bundles - brokers)]
    weights[idle] = 0.0

    def traffic(rates: Floats) -> Traffic:
        return Traffic(rates, msg_size, fan_out, noise=noise, seed=seed, step=timing.stats_period)

    wanted = _target_cpu(random, specs, hot_score)
    unit = traffic(weights)
    cost = unit.cpu_of_bundles(unit.nominal_rates())
    owner = assign_bundles(cost, wanted)
    carried = np.bincount(owner, weights=cost, minlength=brokers)
    rates = weights * np.divide(wanted, carried, out=np.zeros(brokers), where=carried > 0)[owner]
    busy = np.flatnonzero(wanted > 0)
    for number, bundle in enumerate(idle):
        owner[bundle] = NOBODY if number % 2 else random.choice(busy)
    producers = np.where(rates > 0, random.integers(1, 6, bundles), 0)
    return ClusterSpec(
        brokers=specs,
        topology=topology,
        traffic=traffic(rates),
        owner=owner,
        producers=producers,
        consumers=np.where(rates > 0, (producers * fan_out).astype(np.int64), 0),
        timing=timing,
        seed=seed,
    )


def build_cluster(
    *,
    brokers: int = 8,
    bundles: int = 200,
    seed: int = 1,
    noise: Noise | None = None,
    timing: Timing | None = None,
    clock: Clock | None = None,
) -> Cluster:
    """Start the cluster specified by `spec`. The clock is a `ManualClock` by default."""
    return Cluster(spec(brokers=brokers, bundles=bundles, seed=seed, noise=noise, timing=timing), clock)


def _namespaces(bundle_count: int, *, scalable: bool) -> list[Namespace]:
    """Return namespaces with the same number of bundles and so the same hash ranges. The last one is non-persistent."""
    count = max(min(len(_NAMESPACES), bundle_count), -(-bundle_count // _MAX_BUNDLES))
    names = [_NAMESPACES[i] if i < len(_NAMESPACES) else f"tenant{i % 10}/namespace{i}" for i in range(count)]
    shares = [bundle_count // count + (i < bundle_count % count) for i in range(count)]
    more = ("segment",) if scalable else ()
    return [
        Namespace(name, share, domains=("non-persistent" if i == count - 1 else "persistent", *more))
        for i, (name, share) in enumerate(zip(names, shares, strict=True))
    ]


def _target_cpu(random: np.random.Generator, specs: list[BrokerSpec], hot_score: float) -> Floats:
    """Draw the CPU usage that each broker's bundles cause, in percent of one core. One broker is hot, one is empty."""
    middle = random.uniform(*_MIDDLE_SCORES, len(specs) - 2)
    scores = random.permutation(np.concatenate([[hot_score], middle]))
    cpu = (scores / 100 * specs[0].cpu_limit - specs[0].base_cpu).clip(0)
    return np.insert(cpu, random.integers(0, len(specs)), 0.0)
