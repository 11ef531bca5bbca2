"""Broker sizes, and the resources that their bundles' traffic uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulsar_simulator.load import Cost, Floats, Ints, Rates, per_broker

KBIT = 8 / 1000
"""Kbit per byte: NIC speeds are in Kbit/s, as Pulsar reports them."""


_NOTHING = 1e-9  # instead of a divisor of 0


@dataclass(frozen=True, slots=True)
class BrokerColumns:
    """All brokers, with one entry per broker.

    Attributes:
        names: brokerIds.
        cpu_limit: CPU limit in percent of one core, 100 for each core.
        nic: speed of the network interface in each direction in Kbit/s.
        base_cpu: CPU usage without any traffic, in percent of one core; higher if other processes share the machine.
        slowness: CPU cost of traffic in multiples of the normal cost; brokers do not report it.
    """

    names: tuple[str, ...]
    cpu_limit: Floats
    nic: Floats
    base_cpu: Floats
    slowness: Floats | float = 1.0


@dataclass(frozen=True, slots=True)
class Demand:
    """The traffic that brokers carry in one minute, and the resources that they use; one entry per broker.

    Attributes:
        traffic: msg/s and bytes/s that get through.
        cpu: CPU usage in percent of one core, never above the limit.
        bandwidth_in: incoming traffic in Kbit/s, never above the NIC's speed.
        bandwidth_out: outgoing traffic in Kbit/s, with the same limit.
        served: share of the offered traffic that gets through.
    """

    traffic: Rates
    cpu: Floats
    bandwidth_in: Floats
    bandwidth_out: Floats
    served: Floats

    def score(self, brokers: BrokerColumns) -> Floats:
        """Return the usage of each broker's most used resource in percent."""
        shares = (self.cpu / brokers.cpu_limit, self.bandwidth_in / brokers.nic, self.bandwidth_out / brokers.nic)
        return np.asarray(100 * np.maximum.reduce(shares))


def demand(brokers: BrokerColumns, cost: Cost, rates: Rates, owner: Ints, factor: Floats, extra_cpu: Floats) -> Demand:
    """Return the brokers' traffic and usage; an overloaded broker serves the same share of each bundle's traffic.

    Args:
        rates: offered traffic per bundle.
        owner: owner of each bundle.
        factor: cost of each bundle's traffic in multiples of `cost`.
        extra_cpu: CPU usage not caused by traffic, in percent of one core, per broker.
    """
    count = len(brokers.names)
    seconds = (rates.msg_rate_in + rates.msg_rate_out) * cost.per_message
    seconds += (rates.msg_throughput_in + rates.msg_throughput_out) * cost.per_byte
    wanted = brokers.slowness * per_broker(100 * seconds * factor, owner, count)
    offered = rates.per_broker(owner, count)
    room = np.maximum(brokers.cpu_limit - extra_cpu, 0.0)
    inward, outward = offered.msg_throughput_in * KBIT, offered.msg_throughput_out * KBIT
    served = np.minimum.reduce([_share(room, wanted), _share(brokers.nic, inward), _share(brokers.nic, outward)])
    return Demand(
        traffic=offered.scaled(served),
        cpu=np.minimum(wanted * served + extra_cpu, brokers.cpu_limit),
        bandwidth_in=inward * served,
        bandwidth_out=outward * served,
        served=served,
    )


def _share(room: Floats, wanted: Floats) -> Floats:
    return np.minimum(1.0, room / np.maximum(wanted, _NOTHING))
