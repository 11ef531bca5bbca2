"""The true state of a simulated cluster, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulsar_simulator.load import NOBODY

if TYPE_CHECKING:
    from pulsar_simulator.cluster import Cluster
    from pulsar_simulator.load import Floats
    from pulsar_simulator.report import Json


def scores_of(cluster: Cluster) -> dict[str, float]:
    """Return the brokers' current true scores in percent, without sampling or jitter. They can exceed 100."""
    scores = 100 * cluster.samples.true_usage(cluster.clock.now(), cluster.ownership.owner)
    return {b.broker_id: float(scores[b.index]) for b in cluster.membership.brokers}


def rates_of(cluster: Cluster) -> Floats:
    """Return the brokers' current message rates, inbound plus outbound, in msg/s."""
    rates = cluster.traffic.at(cluster.clock.now() - cluster.start)
    totals = rates.per_broker(cluster.ownership.owner, len(cluster.membership.brokers))
    return np.asarray(totals.msg_rate_in + totals.msg_rate_out)


def state_of(cluster: Cluster) -> Json:
    """Return loads, scores, owners, and the destinations that the leader stores."""
    scores = scores_of(cluster)
    rates = rates_of(cluster)
    brokers = cluster.membership.brokers
    return {
        "cluster": cluster.spec.name,
        "now": cluster.clock.now(),
        "leader": None if cluster.membership.leader is None else brokers[cluster.membership.leader].broker_id,
        "brokers": [
            {
                "broker": broker.broker_id,
                "alive": broker.alive,
                "registered": broker.registered,
                "started_at": broker.started_at,
                "score": scores[broker.broker_id],
                "sampled_score": 100 * float(cluster.samples.usage()[broker.index]),
                "msg_rate": float(rates[broker.index]),
                "bundles": int((cluster.ownership.owner == broker.index).sum()),
            }
            for broker in brokers
        ],
        "owners": {
            bundle: None if owner == NOBODY else brokers[owner].broker_id
            for bundle, owner in zip(cluster.topology.bundles, cluster.ownership.owner.tolist(), strict=True)
        },
        "affinities": {key: brokers[i].broker_id for key, i in cluster.placement.affinities.items()},
    }
