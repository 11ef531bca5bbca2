"""The specification of a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_simulator.placement import PlacementStrategy
from pulsar_simulator.sampling import Timing

if TYPE_CHECKING:
    from pulsar_simulator.brokers import BrokerSpec
    from pulsar_simulator.load import Ints, Traffic
    from pulsar_simulator.report import Json
    from pulsar_simulator.topology import Topology


@dataclass(slots=True)
class ClusterSpec:
    """The specification of a simulated cluster.

    Attributes:
        brokers: the brokers, at least one; the first is the leader.
        topology: namespaces, bundles and topics.
        traffic: load of every bundle.
        owner: index of each bundle's initial owner; `NOBODY` if the bundle has no owner.
        producers: number of producers of each bundle.
        consumers: number of consumers of each bundle.
        name: cluster name.
        version: Pulsar version that brokers report.
        timing: periods at which brokers measure and publish.
        placement: strategy for bundles without a destination.
        affinity_by_range: True to store destinations by hash range without the namespace, as in 4.0.8.
        configuration: values that differ from `configuration.DEFAULTS`.
        isolation_policies: answer to `clusters/{c}/namespaceIsolationPolicies`.
        failure_domains: answer to `clusters/{c}/failureDomains`.
        tls: True if the brokers use https.
        seed: seed for the random placement.
    """

    brokers: list[BrokerSpec]
    topology: Topology
    traffic: Traffic
    owner: Ints
    producers: Ints
    consumers: Ints
    name: str = "simulated"
    version: str = "4.2.4"
    timing: Timing = field(default_factory=Timing)
    placement: PlacementStrategy = PlacementStrategy.LEAST_LOADED
    affinity_by_range: bool = False
    configuration: dict[str, str] = field(default_factory=dict)
    isolation_policies: Json = field(default_factory=dict)
    failure_domains: Json = field(default_factory=dict)
    tls: bool = False
    seed: int = 1
