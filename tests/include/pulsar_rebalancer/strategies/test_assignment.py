import pytest
from tests.vectors.rows import sample

from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import PlacementState
from pulsar_rebalancer.strategies.candidates import PolicyFilter
from pulsar_rebalancer.strategies.placement import choose_destinations
from pulsar_rebalancer.strategies.sample import CandidateMove

LEAST_RATE = {"strategy": Strategy.THRESHOLD, "placement": Placement.LEAST_RATE}


def broker(name, cpu=50.0, left_out=None):
    return {"broker": f"{name}:1", "cpu_usage": cpu, "cpu_limit": 100.0, "left_out": left_out, "topics": 0}


def bundle(number, owner, rate, namespace="t/n"):
    return {
        "broker": f"{owner}:1",
        "bundle": f"{namespace}/0x{number:08x}_0x{number + 1:08x}",
        "msg_rate": rate,
        "msg_throughput": rate,
        "long_term_msg_rate": rate,
        "topics": 1,
    }


def placed(brokers, bundles, *, policies=None, planned=(), untaken=(), state=None, **settings):
    """Destination or reason of each bundle on broker `a`, and what the placement keeps."""
    chosen = Settings(**(settings or LEAST_RATE))
    given = sample(brokers, bundles, chosen)
    moves = [
        CandidateMove.new(
            leaving,
            pair=0,
            rank=rank,
            measure=Measure.RATE,
            reason=Reason.OVER_REMAINING if rank in untaken else Reason.TAKEN,
            destination=dict(planned).get(rank),
        )
        for rank, leaving in enumerate(given.bundles.of_broker("a:1"))
    ]
    filters = PolicyFilter(policies or Policies(), given.brokers, given.bundles, chosen)
    found, after = choose_destinations(given, reversed(moves), lambda: filters, state or PlacementState(), "run-1")
    assert [move.rank for move in found] == list(range(len(moves)))
    return [move.destination if move.is_taken else move.reason for move in found], after


def test_moves_see_those_before_them():
    bundles = [bundle(n, "a", 10.0) for n in range(4)] + [bundle(8, "b", 5.0), bundle(9, "c", 12.0)]
    bundles.append(bundle(10, "a", 1000.0))
    found, state = placed([broker(name) for name in "abc"], bundles, untaken=[4])
    assert found == ["b:1", "c:1", "b:1", "c:1", "over_remaining"]
    assert state == PlacementState()


ONLY = Policies(isolation=(IsolationPolicy(name="p", namespaces=("t/n",), primary=("a", "b")),))
GROUPED = Policies(groups={"t/n": "g", "t/m": "g"})


@pytest.mark.parametrize(
    ("brokers", "others", "policies", "planned", "expected"),
    [
        ("ab", [], None, None, "b:1"),
        ("abc", [bundle(5, "b", 900.0), bundle(6, "c", 900.0)], None, None, "same_broker"),
        ("abc", [], ONLY, None, "b:1"),
        ("ac", [], ONLY, None, "policy_forbids"),
        ("abc", [bundle(5, "b", 1.0, "t/m"), bundle(6, "c", 1.0, "t/m")], GROUPED, None, "anti_affinity"),
        ("abc", [], Policies(unknown={"t/n": "forbidden"}), None, "policy_unknown"),
        ("abc", [], None, "c:1", "c:1"),
        ("abc", [], None, "a:1", "same_broker"),
        ("abc", [], None, "d:1", "no_destination"),
        ("abc", [], ONLY, "c:1", "policy_forbids"),
        ("abc", [bundle(5, "b", 1.0, "t/m")], GROUPED, "b:1", "anti_affinity"),
    ],
)
def test_a_move_is_made_or_passed_over_with_a_reason(brokers, others, policies, planned, expected):
    rows = [broker(name) for name in brokers]
    rows.append(broker("d", left_out="broker_excluded"))
    first = bundle(0, "a", 100.0)
    found, _ = placed(rows, [first, *others], policies=policies, planned=[(0, planned)])
    assert found == [expected]


def test_an_overloaded_choice_is_drawn_once_more_over_all_that_policies_leave():
    # The group leaves only b, which is overloaded; beyond it c carries less than a.
    bundles = [bundle(0, "a", 50.0), bundle(1, "c", 1.0, "t/m")]
    rows = [broker("a"), broker("b", cpu=90.0), broker("c")]
    assert placed(rows, bundles, policies=GROUPED)[0] == ["c:1"]
    calm = [broker("a"), broker("b", cpu=85.0), broker("c")]
    assert placed(calm, bundles, policies=GROUPED)[0] == ["b:1"]
