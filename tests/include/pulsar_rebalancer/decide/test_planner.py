from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from pulsar_rebalancer.config.field_types import SplitAlgorithm
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.split_algorithms import BundleLoad, split_condition
from pulsar_rebalancer.decide.split_planning import Cut, SplitInput, find_cut, plan_splits
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import parsed_splits
from pulsar_rebalancer.run.snapshot import Candidate, TopicLoad
from pulsar_rebalancer.state import BundleSplit

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOUNDS = (0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF)
NAMES = [f"acme/orders/0x{low:08x}_0x{high:08x}" for low, high in pairwise(BOUNDS)]
ACTS = {"split_mode": "auto", "auto_split": False}
TOPICS = tuple(TopicLoad(position, 10.0) for position in (0x10000000, 0x20000000, 0x30000000))


def loaded(bundle=NAMES[0], **changes):
    values = {"topics": 5, "sessions": 4, "msg_rate": 40000.0, "msg_throughput": 1000.0, "broker": "b:1"}
    return BundleLoad(**{"bundle": bundle, **values} | changes)


def candidate(bundle=NAMES[0], bounds=BOUNDS, topics=TOPICS):
    return Candidate(bundle=bundle, bounds=bounds, topics=topics)


def planned(bundles, *, settings=None, candidates=None, extensible=False, hits=None, splits=None):
    context = SplitInput(Settings(**ACTS | (settings or {})), extensible, NOW, hits=hits or {}, splits=splits or {})
    known = candidates if candidates is not None else [candidate(each.bundle) for each in bundles]
    return plan_splits(context, bundles, {each.bundle: each for each in known})


def reasons(found):
    return {row["bundle"]: row["reason"] for row in found.split_rows}


@pytest.mark.parametrize(
    ("values", "settings", "met"),
    [
        ({"topics": 1000}, {}, None),  # strictly more
        ({"topics": 1001}, {}, ("topics", 1001, 1000)),
        ({"sessions": 1001}, {}, ("sessions", 1001, 1000)),
        ({"sessions": 1001}, {"max_bundle_sessions": 0}, None),  # switched off
        ({"sessions": 1001}, {"max_bundle_sessions": -1}, None),
        ({"msg_rate": 30000.0}, {}, None),
        ({"msg_rate": 30000.1}, {}, ("msg_rate", 30000.1, 30000)),
        ({"msg_throughput": 100.0 * MIB}, {}, None),
        ({"msg_throughput": 100.0 * MIB + 1}, {}, ("bandwidth", 100.0 * MIB + 1, 100 * MIB)),
        ({"topics": 1001, "sessions": 1001, "msg_rate": 1e9}, {}, ("topics", 1001, 1000)),  # Pulsar's order
    ],
)
def test_conditions_are_those_of_pulsar(values, settings, met):
    bundle = loaded(**{"topics": 5, "sessions": 4, "msg_rate": 10.0} | values)
    assert split_condition(bundle, Settings(**settings)) == met


def test_a_bundle_that_meets_a_condition_is_split():
    found = planned([loaded(), loaded(NAMES[1], msg_rate=10.0)])
    (split,) = parsed_splits(found.split_rows)
    assert (split.bundle, split.positions, split.shares) == (NAMES[0], (0x20000000,), (1 / 3, 2 / 3))
    assert (split.condition, split.unload, split.algorithm) == ("msg_rate", True, "range_equally_divide")
    assert found.bundles_to_split == [NAMES[0]]
    assert found.skip_reasons == {}
    assert found.advice_lines == (
        f"{NAMES[0]} on b:1 has 40,000 msg/s, more than 30,000; a split at 0x20000000 would "
        "give parts with 33 %, 67 % of the traffic. "
        "The bundle will be split; its parts may move later.",
    )


def test_a_bundle_with_too_many_topics_is_split_however_its_traffic_is_shared():
    of_one_topic = candidate(topics=(TopicLoad(1, 100.0), *TOPICS))
    found = planned([loaded(msg_rate=1.0, topics=1001)], candidates=[of_one_topic])
    assert found.bundles_to_split == [NAMES[0]]


@pytest.mark.parametrize(
    ("bundle", "known", "settings", "reason"),
    [
        ({"topics": 1, "sessions": 5000}, {}, {}, "no_position"),
        ({}, {"topics": TOPICS[:1]}, {}, "no_position"),
        ({"stay_reason": Reason.SYSTEM_NAMESPACE}, {}, {}, "system_namespace"),
        ({"bundle": "acme/orders/0x00000000_0x00000001"}, {"bounds": (0, 1, 0xFFFFFFFF)}, {}, "no_position"),
        ({}, None, {}, "topics_unknown"),
        ({}, {"bounds": ()}, {}, "topics_unknown"),
        ({}, {"topics": None}, {"split_algorithm": "topic_count_equally_divide"}, "topics_unknown"),
        ({}, {"bounds": (0, 0x20000000, 0x40000000, 0xFFFFFFFF)}, {}, "range_gone"),
        ({}, {}, {"max_namespace_bundles": 4}, "namespace_full"),
        ({}, {}, {"split_algorithm": "flow_or_qps_equally_divide"}, "no_position"),  # 30 msg/s in all
        ({}, {}, {"split_algorithm": "specified_positions_divide"}, "no_position"),  # nobody specified one
        ({}, {"topics": (TopicLoad(1, 91.0), TopicLoad(0x30000000, 9.0))}, {}, "uneven_split"),
        ({}, {}, {"auto_split": True}, "builtin_splitting_on"),
        ({}, {}, {"split_mode": "observe"}, "split_observed"),
    ],
)
def test_bundles_left_whole_have_a_reason(bundle, known, settings, reason):
    large = loaded(**bundle)
    candidates = [] if known is None else [candidate(large.bundle, **known)]
    found = planned([large], settings=settings, candidates=candidates)
    assert reasons(found) == {large.bundle: reason}
    assert found.bundles_to_split == []
    assert found.skip_reasons == {reason: 1}
    assert Reason(reason).meaning in found.advice_lines[0]


def test_a_bundle_that_validation_left_out_is_not_named_again():
    assert planned([loaded(stay_reason=Reason.BUNDLE_QUARANTINED)]).split_rows == []


def test_caps_leave_the_less_loaded_for_later():
    bundles = [loaded(name, msg_rate=31000.0 + n) for n, name in enumerate(NAMES)]
    found = planned(bundles, settings={"max_splits_per_run": 2})
    assert [row["bundle"] for row in found.split_rows] == NAMES[::-1]
    assert [row["reason"] for row in found.split_rows] == ["to_be_split"] * 2 + ["cap_splits"] * 2
    of_run = planned(bundles, settings={"max_splits_per_run": 1})
    assert of_run.bundles_to_split == [NAMES[3]]


@pytest.mark.parametrize(
    ("bundle", "minutes", "outcome", "reason"),
    [
        (NAMES[0], 59, "split", "recently_split"),
        ("acme/orders/0x00000000_0x80000000", 59, "split", "recently_split"),  # it is a part of that one
        (NAMES[0], 59, "not_split", "recently_split"),  # tried in vain: not again at once
        (NAMES[0], 61, "split", "to_be_split"),
        (NAMES[1], 59, "split", "to_be_split"),
        ("acme/other/0x00000000_0x80000000", 59, "split", "to_be_split"),
    ],
)
def test_recently_split_bundle_is_not_split_again(bundle, minutes, outcome, reason):
    before = BundleSplit(
        at=NOW - timedelta(minutes=minutes), plan_id="p", positions=(5,), shares=(0.5, 0.5), outcome=outcome
    )
    assert reasons(planned([loaded()], splits={bundle: before})) == {NAMES[0]: reason}


@pytest.mark.parametrize(
    "values", [{"msg_rate": 101.0}, {"topics": 101}, {"sessions": 101}, {"msg_throughput": 101.0 * MIB}]
)
def test_the_extensible_load_manager_waits_for_hits_and_splits_so_many_per_broker(values):
    """Pulsar's own test: limits 100, more than 3 hits, one per cycle: the first in run 4, the second in run 5."""
    bundles = [loaded(name, **{"msg_rate": 1.0, "msg_throughput": 1.0} | values) for name in NAMES[:2]]
    limits = dict.fromkeys(
        ("max_bundle_topics", "max_bundle_sessions", "max_bundle_msg_rate", "max_bundle_bandwidth"), 100
    )
    caps = {"max_splits_per_broker": 1, "max_splits_per_run": 9}
    taken, hits, counted = list[list[str]](), dict[str, int](), []
    for _ in range(5):
        found = planned(bundles, settings=limits | caps, extensible=True, hits=hits)
        taken, hits = [*taken, found.bundles_to_split], found.hits_by_bundle
        counted.append(hits.get(NAMES[1]))
    assert taken == [[], [], [], [NAMES[0]], [NAMES[1]]]
    assert hits == {NAMES[0]: 1}
    assert counted == [1, 2, 3, 3, None]  # in run 4 the broker looked at no further bundle


def test_the_extensible_load_manager_cuts_in_two_where_traffic_is_halved():
    topics = tuple(TopicLoad(position, 60.0) for position in range(0x1000000, 0x9000000, 0x1000000))
    settings = Settings(max_bundle_msg_rate=100)
    each = find_cut(candidate(topics=topics), SplitAlgorithm.FLOW, settings)
    single = find_cut(candidate(topics=topics), SplitAlgorithm.FLOW, settings, single_cut=True)
    assert isinstance(each, Cut)
    assert len(each.positions) == 7
    assert single == Cut((0x4800001,), (0.5, 0.5))
