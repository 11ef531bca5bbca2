"""Bundles with segments of scalable topics: placed like any others, at no more than an ordinary bundle's cost."""

import asyncio

import pytest
from tests.include.pulsar_rebalancer.carry_out.unloading_scene import ON_A, ON_B, scenes

from pulsar_rebalancer.carry_out import bundle_move
from pulsar_rebalancer.pulsar import BundleAdmin
from pulsar_rebalancer.pulsar.bundle_calls import client_counts
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_simulator.topology import Namespace

ORDINARY, SEGMENTS, MIXED, VANISHING = 0, 2, 4, 6  # bundles of A


@pytest.fixture
def scene():
    segments = ("segment",)
    with scenes(
        Namespace("acme/ordinary", 2),
        Namespace("acme/segments", 2, domains=segments),
        Namespace("acme/mixed", 2, domains=("non-persistent", "segment")),
        Namespace("acme/vanishing", 2, domains=segments),
        Namespace("acme/rest", ON_A + ON_B - 8),
    ) as running:
        yield running


def test_segments_cost_no_more_than_ordinary_topics_even_if_they_vanish(scene, monkeypatch):
    """One unload, one lookup and no pause per move."""
    monkeypatch.setattr(bundle_move, "retry_delays", lambda: iter(()))  # a move that pauses breaks off
    gone = scene.bundles[VANISHING]

    def prepare(admin):
        def vanish():
            if admin.unloads[-1] == gone:
                scene.cluster.scale_load(0.0, bundle=gone)

        admin.before_unload = vanish

    moves = [scene.move(number) for number in (ORDINARY, SEGMENTS, MIXED, VANISHING)]
    outcomes = {outcome.bundle: outcome for outcome in scene.run(*moves, prepare=prepare)}
    ended = [outcomes[move.bundle] for move in moves]
    assert [outcome.reason for outcome in ended] == ["moved", "moved", "moved", "no_lookup"]
    assert [scene.cluster.owner(move.bundle) for move in moves] == [scene.b] * 3 + [None]
    assert "Topic not found" in ended[-1].error
    assert not any(outcome.destination_kept for outcome in ended)
    assert [outcome.attempts for outcome in ended] == [1] * 4
    looked_up = scene.admin.looked_up
    assert len(looked_up) == len(set(looked_up)) == len(moves)


def test_clients_of_a_segment_are_in_the_statistics_of_its_scalable_topic(scene):
    async def connected(topic):
        async with Transport(scene.connection()) as transport:
            return await BundleAdmin(transport).count_clients(topic, scene.a)

    for number, topic in enumerate(scene.cluster.topology.topics(SEGMENTS)):
        assert asyncio.run(connected(topic)) == client_counts(scene.cluster.reporter.client_stats(SEGMENTS, number))


@pytest.mark.parametrize("owned", [True, False])
def test_segments_that_brokers_leave_out_of_their_lists_are_found(scene, owned):
    if not owned:
        scene.cluster.unload(scene.bundles[SEGMENTS])
    outcome = scene.run_one(scene.move(SEGMENTS))
    assert (outcome.reason, outcome.owner) == ("moved", scene.b)
    scene.cluster.scale_load(0.0, bundle=scene.bundles[SEGMENTS + 1])
    assert scene.run_one(scene.move(SEGMENTS + 1)).reason == "no_topic"
