import asyncio

import numpy as np
import pytest
from pydantic import SecretStr

from pulsar_rebalancer.carry_out.split_executor import carry_out_splits
from pulsar_rebalancer.pulsar import AdminConnection
from pulsar_rebalancer.pulsar.bundle_calls import BundleAdmin
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_rebalancer.run.plan import Split, SplitOutcome
from pulsar_simulator.brokers import BrokerSpec
from pulsar_simulator.cluster import Cluster, ClusterSpec
from pulsar_simulator.load import NO_NOISE, Traffic
from pulsar_simulator.serve import serve
from pulsar_simulator.topology import Namespace, Topology

WHOLE = "0x00000000_0xffffffff"
MIDDLE = 0x7FFFFFFF
NAMES = [f"acme/n{number}" for number in range(12)]
HOPELESS, LONG = 0.3, 30.0  # time-outs, seconds: one that runs out, one that must not matter


class Watched(BundleAdmin):
    """The real client; notes the splits, and lets a test step in around one."""

    def __init__(self, transport):
        super().__init__(transport)
        self.asked = []
        self.before = self.after = lambda: None

    async def split(self, bundle, algorithm, positions=(), *, unload=False):
        self.asked.append((bundle, algorithm))
        self.before()
        await super().split(bundle, algorithm, positions, unload=unload)
        self.after()


@pytest.fixture(scope="module")
def served():
    """Namespaces of one bundle each, every one used by one test; those of the second broker are split by redirect."""
    bundles = len(NAMES)
    ones = np.ones(bundles)
    traffic = Traffic(100 * ones, 100 * ones, ones, noise=NO_NOISE, seed=1, step=60)
    topology = Topology([Namespace(name, 1, topics_per_bundle=1 if name == NAMES[0] else 4) for name in NAMES])
    counts = np.ones(bundles, dtype=np.int64)
    brokers = [BrokerSpec(f"127.0.0.1:{port}") for port in (1, 2)]
    spec = ClusterSpec(brokers, topology, traffic, np.arange(bundles) % 2, counts, counts)
    with serve(Cluster(spec)) as served:
        yield served


def split(name, *positions, algorithm="specified_positions_divide", **changes):
    shares = (1 / (len(positions) + 1),) * (len(positions) + 1)
    found = {"bundle": f"{name}/{WHOLE}", "broker": "b:1", "algorithm": algorithm, "positions": positions}
    return Split(**found | {"shares": shares} | changes)


def carry(served, *splits, most=128, timeout=LONG, prepare=None, told=None, stop_reason=lambda: None):
    async def act():
        connection = AdminConnection(seeds=tuple(served.urls), token=SecretStr(served.token))
        async with Transport(connection) as transport:
            client = Watched(transport)
            if prepare:
                prepare(client)
            outcomes = await carry_out_splits(
                client,
                splits,
                max_bundles=most,
                timeout_seconds=timeout,
                on_outcome=(told if told is not None else []).append,
                stop_reason=stop_reason,
            )
            return outcomes, client.asked

    return asyncio.run(act())


def bounds(served, name):
    return served.cluster.topology.boundaries(name)


def test_a_namespace_gets_the_planned_bounds_and_a_second_attempt_asks_for_nothing(served):
    wanted = [
        split(NAMES[1], 0x10000000, 0xE0000000),
        split(NAMES[2], MIDDLE, algorithm="range_equally_divide"),
        split(NAMES[3], 0x40000000, algorithm="flow_or_qps_equally_divide", unload=True),
    ]
    told: list[SplitOutcome] = []
    outcomes, asked = carry(served, *wanted, told=told)
    assert told == outcomes
    assert [(o.reason, o.attempts, o.found) for o in outcomes] == [("split", 1, w.positions) for w in wanted]
    # brokers fail at the flow algorithm unless it is their default: its positions are sent
    assert [algorithm for _, algorithm in asked] == [
        "specified_positions_divide",
        "range_equally_divide",
        "specified_positions_divide",
    ]
    assert bounds(served, NAMES[1]) == (0, 0x10000000, 0xE0000000, 0xFFFFFFFF)
    again, asked = carry(served, *wanted)
    assert asked == []
    assert {o.reason for o in again} == {"split"}
    assert all(o.ok for o in again)


def test_a_204_that_splits_nothing_is_no_success(served):
    """A bundle with one topic: brokers accept it and do nothing."""
    (outcome,), asked = carry(served, split(NAMES[0], MIDDLE), timeout=HOPELESS)
    assert (outcome.reason, outcome.ok, outcome.found, len(asked)) == ("not_split", False, (), 1)


def test_bundle_that_changed_since_the_plan_is_not_split(served):
    cluster = served.cluster
    gone = split(NAMES[4], 0x20000000, bundle=f"{NAMES[4]}/0x00000000_0x40000000")
    other = split(NAMES[5], 0x20000000)
    cluster.split_via(1, NAMES[5], WHOLE, "range_equally_divide", [], unload=False)
    outcomes, asked = carry(served, gone, other, split(NAMES[6], MIDDLE), most=1)
    assert [o.reason for o in outcomes] == ["range_gone", "split_elsewhere", "namespace_full"]
    assert outcomes[1].found == (MIDDLE,)
    assert asked == []


@pytest.mark.parametrize(
    ("fault", "reason"), [("forbidden", "forbidden"), ("error_500", "server_error"), ("unauthorized", "unauthorized")]
)
def test_refused_split_has_its_reason_and_stops_no_other(served, fault, reason):
    served.cluster.faults.add(fault, path="/split", times=1)
    refused, carried = carry(served, split(NAMES[9], 0x20000000), split(NAMES[1], 0x10000000, 0xE0000000))[0]
    assert (refused.reason, refused.found, refused.attempts) == (reason, (), 1)
    assert refused.error
    assert carried.ok
    assert len(bounds(served, NAMES[9])) == 2
