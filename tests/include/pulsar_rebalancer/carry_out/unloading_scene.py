"""A simulated cluster of three brokers to move bundles on over HTTP: A (hot), B (in between) and C (empty).

C is the least loaded broker, so a bundle that has lost its planned destination lands there, and never on B by chance.
The cluster's clock is stopped: clients look no topics up and sessions do not end unless a test lets time pass.
"""

import asyncio
import contextlib

import numpy as np
import pytest
from pydantic import SecretStr

from pulsar_rebalancer.carry_out import bundle_move
from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.pulsar import AdminConnection, BundleAdmin
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Move
from pulsar_simulator.brokers import BrokerSpec
from pulsar_simulator.cluster import Cluster, ClusterSpec
from pulsar_simulator.load import NO_NOISE, Traffic
from pulsar_simulator.serve import serve
from pulsar_simulator.topology import Namespace, Topology

ON_A, ON_B = 10, 6
IDLE = 9  # a bundle of A without producers: no topic is loaded
SESSION = 60.0  # longer than any broker's metadata session
RECONNECT = 5.0  # longer than clients wait until they look a lost topic up
SHORT, LONG = 1.0, 30.0  # time-outs, seconds: one that runs out, one that must not matter


class Watched(BundleAdmin):
    """The real client; notes the unloads, and lets a test step in around a call."""

    def __init__(self, transport):
        super().__init__(transport)
        self.unloads = []
        self.looked_up = []
        self.under_way = self.most_under_way = 0
        self.before_unload = self.after_unload = self.after_lookup = lambda: None

    @contextlib.contextmanager
    def _counted(self):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            yield
        finally:
            self.under_way -= 1

    async def unload(self, bundle, destination):
        with self._counted():
            self.unloads.append(bundle)
            self.before_unload()
            await super().unload(bundle, destination)
            self.after_unload()

    async def lookup_owner(self, topic, destination=""):
        with self._counted():
            self.looked_up.append(topic)
            owner = await super().lookup_owner(topic, destination)
            self.after_lookup()
            return owner


class Scene:
    def __init__(self, served):
        self.served = served
        self.cluster = served.cluster
        self.a, self.b, self.c = (broker.broker_id for broker in served.cluster.membership.brokers)
        self.bundles = served.cluster.topology.bundles
        self.told = []

    def move(self, number, destination=None):
        return Move(
            bundle=self.bundles[number],
            source=self.a,
            destination=destination or self.b,
            wave=0,
            traffic=100.0,
            measure="message_rate",
        )

    def connection(self, **settings):
        return AdminConnection(seeds=tuple(self.served.urls), token=SecretStr(self.served.token), **settings)

    def run(
        self, *moves, prepare=None, concurrency=4, retries=2, timeout=LONG, on_outcome=None, affinity=True, **connection
    ):
        async def act():
            async with Transport(self.connection(**connection)) as transport:
                self.admin = admin = Watched(transport)
                if prepare is not None:
                    prepare(admin)
                return await carry_out_moves(
                    admin,
                    moves,
                    concurrency=concurrency,
                    timeout_seconds=timeout,
                    on_outcome=on_outcome or self.told.append,
                    uses_affinity=affinity,
                )

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bundle_move, "MAX_RETRIES", retries)
            outcomes = asyncio.run(act())
        assert {outcome.reason for outcome in outcomes} <= set(Reason)
        return outcomes

    def run_one(self, move=None, **options):
        (outcome,) = self.run(move or self.move(0), **options)
        return outcome

    def once(self, *actions):
        """A callable that does one action per call, then nothing."""
        left = list(actions)
        return lambda: left.pop(0)() if left else None


@contextlib.contextmanager
def scenes(*namespaces):
    """The cluster while it runs; the namespaces have ON_A + ON_B bundles."""
    topology = Topology(list(namespaces) or [Namespace("acme/orders", ON_A + ON_B)])
    rates = np.full(ON_A + ON_B, 1000.0)
    rates[IDLE] = 0.0
    ones = np.ones(ON_A + ON_B)
    clients = np.ones(ON_A + ON_B, dtype=np.int64)
    spec = ClusterSpec(
        brokers=[BrokerSpec(f"127.0.0.1:{port}") for port in (1, 2, 3)],
        topology=topology,
        traffic=Traffic(rates, 1024 * ones, ones, noise=NO_NOISE, seed=1, step=1.0),
        owner=np.repeat([0, 1], [ON_A, ON_B]),
        producers=clients,
        consumers=clients,
    )
    with serve(Cluster(spec)) as served:
        yield Scene(served)
