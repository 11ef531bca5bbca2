"""What deciding asks of Java does not grow with the cluster: lists of names would be a call for each of them."""

from __future__ import annotations

from collections import Counter

from lab.benchmarks import clusters
from py4j.java_gateway import GatewayClient

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer_spark.rebalance import decide


def test_calls_into_java_are_as_many_for_ten_times_the_brokers(spark, tmp_path, monkeypatch):
    send, made = GatewayClient.send_command, Counter[int]()

    def counted(self, command, *rest, **named):
        made[brokers] += command.startswith("c\n")
        return send(self, command, *rest, **named)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    for brokers in (20, 200):
        root = str(tmp_path / str(brokers))
        # Under policies, all pairs firing, with bundles that moved lately.
        run = clusters.make(root, brokers, 10)
        assert decide(lambda: spark, RunInput.read(run.uri)).bundles_taken
    assert 0 < made[200] <= made[20]
