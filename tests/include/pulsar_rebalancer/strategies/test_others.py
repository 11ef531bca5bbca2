"""Candidates that are all of a list but a few are to every placement what the written-out list is."""

from random import Random

import pytest
from tests.vectors.rows import sample

from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.state import PlacementState
from pulsar_rebalancer.strategies.candidates import SubsetView
from pulsar_rebalancer.strategies.placement import make_selector


def others(random, names):
    without = [name for name in names if random.random() < 0.4]
    return SubsetView(names, {name: n for n, name in enumerate(names)}, without), [n for n in names if n not in without]


@pytest.mark.parametrize("seed", range(40))
def test_others_behave_like_a_list(seed):
    random = Random(seed)
    found, written = others(random, [f"b{n:02}" for n in range(random.randint(0, 12))])
    assert list(found) == [found[n] for n in range(len(written))] == written
    assert found == written
    assert [found[-n] for n in range(1, len(written) + 1)] == written[::-1]
    assert [name for name in found.brokers if name in found] == written
    with pytest.raises(IndexError):
        found[len(written)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("load_average", [False, True])
@pytest.mark.parametrize("placement", Placement)
def test_a_placement_chooses_the_same(placement, load_average, seed):
    random = Random(seed)
    names = [f"b{n}" for n in range(8)]
    listed = [
        {
            "broker": name,
            "left_out": None,
            "cpu_usage": float(random.choice((5, 20, 20, 60, 90))),
            "cpu_limit": 100.0,
            "bundles": 1,
            "msg_rate_in": 1.0,
            "load_average": random.random() if load_average else None,
        }
        for name in names
    ]
    settings = Settings(strategy=Strategy.THRESHOLD, placement=placement, overloaded_threshold=80)
    one, other = (make_selector(sample(listed, [], settings), PlacementState()) for _ in range(2))
    for number in range(60):
        found, written = others(random, names) if number % 4 else (names, names)
        chosen = list(one.eligible_brokers("t/n/0x0_0x1", found))
        assert chosen == list(other.eligible_brokers("t/n/0x0_0x1", written))
        placed = BundleSample("source", f"t/n/{number}", long_term_msg_rate=float(random.choice((0, 1, 3))))
        destination = random.choice(chosen or names)
        for chooser in (one, other):
            chooser.add_placement(placed, destination)
    assert one.placement_state() == other.placement_state()
