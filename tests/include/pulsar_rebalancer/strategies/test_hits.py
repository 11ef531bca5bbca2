from typing import Any

import pytest

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import HitRules
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision, used_score_by_broker

COUNTED, FORCED = HitRules(True, Reason.COUNTED), HitRules(False, Reason.FORCED)
BOTH = {"a:1": 80.0, "b:1": 20.0}


def pair(**changes: Any) -> Decision:
    scores: Any = {"pair": 0, "destination": "b:1", "source_score": 80.0, "destination_score": 20.0, "low_hits": 3}
    return Decision("a:1", Reason.HIT_COUNT, **scores | changes)


MIDDLE = Decision("m:1", Reason.NO_PARTNER, 1, None, "m:1", 50.0, 50.0, 0.0, low_hits=0)


def move(source: str, destination: str, reason: Reason = Reason.TAKEN, pair: int = 0) -> CandidateMove:
    bundle = BundleSample(source, "t/n/0x00000000_0x80000000")
    return CandidateMove.new(bundle, pair=pair, rank=0, measure=Measure.RATE, reason=reason, destination=destination)


@pytest.mark.parametrize(
    ("decision", "counting", "moved", "used"),
    [
        (pair(source_low_before=2, destination_low_before=1), COUNTED, [], BOTH),
        (pair(source_low_before=3, destination_low_before=1), COUNTED, [], {}),
        (pair(source_low_before=1, destination_low_before=3), COUNTED, [], {}),
        (pair(), COUNTED, [], BOTH),
        (pair(low_hits=1), COUNTED, [], BOTH),
        (pair(low_hits=0), COUNTED, [move("a:1", "b:1")], {}),
        (pair(low_hits=None), FORCED, [move("a:1", "b:1")], {}),
        (pair(), FORCED, [move("a:1", "b:1")], BOTH),
        (pair(), FORCED, [move("a:1", "b:1", Reason.CAP_RUN)], {}),
        # The middle broker gave in place of the pair's source.
        (pair(), FORCED, [move("m:1", "b:1")], {"m:1": 50.0, "b:1": 20.0}),
        # A drain, whose pair has no hits.
        (pair(), FORCED, [move("a:1", "b:1", pair=-1)], {}),
        (pair(), FORCED, [], {}),
        (pair(destination_score=None), COUNTED, [], {"a:1": 80.0}),
    ],
)
def test_a_figure_is_used_by_a_hit_or_by_a_move(decision, counting, moved, used):
    assert used_score_by_broker([pair(pair=-1, low_hits=None), decision, MIDDLE], counting, moved) == used
