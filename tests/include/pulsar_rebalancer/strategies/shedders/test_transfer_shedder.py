"""TransferShedder against its upstream test cases, and the rules that are ours."""

from __future__ import annotations

import pytest
from tests.include.pulsar_rebalancer.strategies.shedders.transfer_shedder_results import hits, moved
from tests.vectors.rows import broker, bundle, check, completed, reasons, sample, whatever_the_order

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.state_documents import HitCount
from pulsar_rebalancer.strategies.kept import WHOLE_CLUSTER, ShedderState
from pulsar_rebalancer.strategies.shedders.load_stats import BrokerLoad, LoadStats
from pulsar_rebalancer.strategies.shedders.transfer_shedder import broker_loads, shed

NOTHING = ShedderState()
THREE_HITS = ShedderState(hits={WHOLE_CLUSTER: HitCount(low=3)})

MILLION = 1e6
UPSTREAM = Settings(credit_swaps=True, hit_count_transfer=0, max_brokers_per_run=10)
LOADS = {"b1": 2, "b2": 4, "b3": 6, "b4": 80, "b5": 90}
SIZES = {"b1": (1, 2), "b2": (1, 3), "b3": (2, 4), "b4": (2, 6), "b5": (2, 7)}


def cluster(loads, sizes, settings=UPSTREAM, reason=None, averages=None, **more):
    """What `listed` lists, as a sample."""
    brokers, bundles = listed(loads, sizes, reason, averages)
    return sample(brokers, bundles, settings, **more)


def listed(loads, sizes, reason=None, averages=None):
    """Rows of brokers with CPU in percent and bundles in MB/s out, named `t/<broker>/<n>` in the order given."""
    brokers, bundles = [], []
    for name, cpu in loads.items():
        # Upstream's brokers carry one byte per second beside their bundles.
        throughput = sum(sizes[name]) * MILLION + 1
        average = (averages or {}).get(name)
        brokers.append(broker(name, cpu, throughput=throughput, throughput_average=average))
        bundles += [
            bundle(name, f"t/{name}/{n}", throughput=size * MILLION, top_rank=n, reason=(reason or {}).get(name))
            for n, size in enumerate(sizes[name], 1)
        ]
    return brokers, bundles


@pytest.mark.parametrize(
    ("loads", "sizes", "more", "expected", "mean_and_std"),
    [
        pytest.param(
            {},
            {},
            {},
            [("b4/1", "b2", "Overloaded"), ("b5/1", "b1", "Overloaded")],
            (0.36400000000000005, 0.3982762860126121),
            id="base",
        ),
        pytest.param(
            {},
            {},
            {"reason": dict.fromkeys(("b4", "b5"), "recently_unloaded")},
            [("b3/1", "b1", "Overloaded")],
            None,
            id="recently_unloaded",
        ),
        pytest.param(
            {"b4": 55, "b5": 65},
            {},
            {},
            [("b5/1", "b1", "Overloaded")],
            (0.264, 0.27644891028904417),
            id="until_target",
        ),
        pytest.param(
            {"b4": 55, "b5": 65},
            {},
            {"averages": {"b2": 10.0}},
            [("b4/1", "b2", "Underloaded"), ("b5/1", "b1", "Overloaded")],
            None,
            id="idlest_carries_little",
        ),
        pytest.param(
            {"b2": 3, "b4": 55, "b5": 65},
            {},
            {},
            [("b4/1", "b2", "Underloaded"), ("b5/1", "b1", "Overloaded")],
            (0.262, 0.2780935094532054),
            id="idlest_is_lower",
        ),
        pytest.param(
            {"b4": 200, "b5": 1000},
            {},
            {},
            [("b4/1", "b2", "Overloaded"), ("b5/1", "b1", "Overloaded")],
            (2.4240000000000004, 3.8633332758124816),
            id="above_100",
        ),
        pytest.param({}, dict.fromkeys(LOADS, (0, 0)), {}, [], None, id="no_traffic"),
        pytest.param({}, dict.fromkeys(LOADS, (5,)), {}, [], None, id="single_bundle"),
    ],
)
def test_upstream_cases(loads, sizes, more, expected, mean_and_std):
    given = cluster(LOADS | loads, SIZES | sizes, **more)
    result = shed(given, NOTHING)
    assert moved(result) == [(f"t/{name}", name[:2], destination, why) for name, destination, why in expected]
    if mean_and_std:
        spread = LoadStats(broker_loads(given, NOTHING)[0], UPSTREAM)
        assert (spread.mean, spread.std) == pytest.approx(mean_and_std, abs=1e-5)


@pytest.mark.parametrize(
    ("loads", "sizes", "target", "there", "back"),
    [
        pytest.param(
            (10, 1000), ((1, 2, 3, 4, 5), (100, 180, 220, 250, 250)), 0.25, [1, 2, 3], [1, 2, 3, 4], id="many"
        ),
        pytest.param((50, 100), ((1, 500), (500, 500)), 0.2, [], [], id="in_vain"),
        pytest.param((10, 1000), ((1, 2, 3, 4, 5), (490, 510)), 0.25, [1], [], id="without"),
        pytest.param((48, 100), ((2.4, 2.4), (5, 5)), 0.25, [1], [1], id="one"),
    ],
)
def test_upstream_swaps(loads, sizes, target, there, back):
    settings = UPSTREAM.model_copy(update={"target_std": target})
    result = shed(cluster(dict(zip("ab", loads, strict=True)), dict(zip("ab", sizes, strict=True)), settings), NOTHING)
    planned = {(move.bundle, move.source, move.destination) for move in result.moves if move.taken}
    assert planned == {(f"t/b/{n}", "b", "a") for n in there} | {(f"t/a/{n}", "a", "b") for n in back}


SWAP = {"loads": {"a": 48, "b": 100}, "sizes": {"a": (2.4, 2.4), "b": (5, 5)}}


class TestSwaps:
    @pytest.mark.parametrize(
        ("reason", "swapped"),
        [
            ("recently_unloaded", True),
            *((why, False) for why in ("namespace_excluded", "bundle_excluded", "system_namespace", "to_be_split")),
        ],
    )
    def test_what_never_moves_is_not_swapped_either(self, reason, swapped):
        result = shed(cluster(**SWAP, reason={"a": reason}), NOTHING)
        assert [move.source for move in result.moves if move.taken] == (["b", "a"] if swapped else [])

    def test_policies_are_asked_for_both_directions(self):
        asked = []

        def forbids(name, source, destination):
            asked.append((name, source, destination))
            return Reason.POLICY_FORBIDS if name in ("t/a/1", "t/b/2") else None

        result = shed(cluster(**SWAP, forbids=forbids), NOTHING)
        assert asked == [("t/b/1", "b", "a"), ("t/a/1", "a", "b"), ("t/a/2", "a", "b"), ("t/b/2", "b", "a")]
        assert result.moves[-1].reason == "policy_forbids"
        assert [move.bundle for move in result.moves if move.taken] == ["t/b/1", "t/a/2"]

    def test_without_transfer_nothing_comes_back_and_placement_names_the_destination(self):
        result = shed(cluster(**SWAP, settings=UPSTREAM.model_copy(update={"transfer": False})), NOTHING)
        assert [(move.reason, move.destination) for move in result.moves] == [
            ("over_remaining", None),
            ("not_reached", None),
        ]

    @pytest.mark.parametrize(
        ("credited", "expected"), [(True, ["t/b/1", "t/b/2", "t/b/3"]), (False, ["t/b/1", "t/b/2"])]
    )
    def test_what_comes_back_leaves_room_when_it_is_counted(self, credited, expected):
        settings = UPSTREAM.model_copy(update={"credit_swaps": credited, "max_brokers_per_run": 1})
        result = shed(cluster({"a": 10, "b": 100}, {"a": (3, 1), "b": (6, 6, 1, 7)}, settings), NOTHING)
        assert [move.bundle for move in result.moves if move.taken and move.source == "b"] == expected

    def test_what_came_back_in_a_swap_counts_in_the_next_one(self):
        settings = UPSTREAM.model_copy(update={"max_brokers_per_run": 1})
        result = shed(cluster({"a": 10, "b": 100}, {"a": (1, 2), "b": (5, 2, 4)}, settings), NOTHING)
        assert [move.bundle for move in result.moves if move.taken] == ["t/b/1", "t/a/1", "t/b/2", "t/a/2"]


def test_a_bundle_of_exactly_the_target_is_taken():
    rows = [bundle("b", f"t/b/{n}", throughput=3, top_rank=n) for n in range(3)]
    settings = Settings(hit_count_transfer=0, target_std=0.2)
    result = shed(sample([broker("a", 25), broker("b", 75, throughput=9)], rows, settings), NOTHING)
    assert result.decisions[0].target == 3
    assert [move.reason for move in result.moves] == ["taken", "over_remaining", "not_reached"]


def test_a_source_without_load_has_nothing_to_give_away():
    result = shed(cluster({"a": 0, "b": 0}, {"a": (0, 0), "b": (5, 5)}), NOTHING)
    assert [(row.source, row.destination, row.fired, row.target) for row in result.decisions] == [("b", "a", True, 0.0)]
    assert [move.reason for move in result.moves] == ["over_remaining", "not_reached"]


@pytest.mark.parametrize(("target", "kind"), [(0.25, None), (0.24, "overloaded")])
def test_the_standard_deviation_must_exceed_its_target(target, kind):
    imbalance = LoadStats(
        [BrokerLoad("a", 0.25, 0, 0), BrokerLoad("b", 0.75, 0, 0)], Settings(target_std=target, overloaded_threshold=75)
    ).imbalance()
    assert (imbalance and imbalance.kind) == kind


def test_without_a_report_the_loads_are_nothing():
    stats = LoadStats([], Settings())
    assert (stats.counted, stats.mean, stats.std) == (0, 0, 0)


@pytest.mark.parametrize(("switch", "expected"), [(False, ["t/b4/1"]), (True, ["t/b5/1", "t/b4/1"])])
def test_bundles_under_policies_move_when_the_switch_is_on(switch, expected):
    brokers, bundles = listed(LOADS, SIZES)
    for row in bundles:
        row["policy"] = "isolation" if row["broker"] == "b5" else None
    settings = UPSTREAM.model_copy(update={"shed_policy_bundles": switch})
    result = shed(sample(brokers, bundles, settings), NOTHING)
    assert [move.bundle for move in result.moves if move.taken] == expected
    assert "namespace_policy" not in {move.reason for move in result.moves} or not switch


@pytest.mark.parametrize(
    ("switch", "expected"),
    [(False, ["t/b3/0", "t/b2/0", "t/b1/0"]), (True, ["t/b3/0", "t/b2/0", "t/policy/0", "t/b1/0"])],
)
def test_top_bundles_are_found_where_brokers_do_not_name_them(switch, expected):
    # Sizes are rounded: 149 to one step, 151 to two.
    named = {"b1": 100_000, "b2": 151, "b3": 149}
    bundles = [bundle("hot", f"t/{name}/0", rate=rate, throughput=1) for name, rate in named.items()]
    bundles += [
        bundle("hot", "t/idle/0", rate=1e6, throughput=0),
        bundle("hot", "pulsar/system/0", rate=5, throughput=10),
        bundle("hot", "t/excluded/0", rate=5, throughput=10),
        bundle("hot", "t/policy/0", rate=5_000, throughput=10, policy="isolation"),
        bundle("hot", "t/smallest/0", rate=1, throughput=10),
    ]
    size = len(expected)
    settings = Settings(top_bundles=size, excluded_namespaces=("t/excluded",), shed_policy_bundles=switch)
    settings = settings.model_copy(update={"hit_count_transfer": 0, "target_std": 0.1})
    given = sample([broker("hot", 90, throughput=60), broker("cold", 10)], bundles, settings)
    assert [move.bundle for move in shed(given, NOTHING).moves] == expected


class TestHits:
    SETTINGS = UPSTREAM.model_copy(update={"hit_count_transfer": 3})

    def test_more_than_three_runs_in_a_row_out_of_balance(self):
        kept, counts = NOTHING, []
        for _ in range(5):
            result = shed(cluster(LOADS, SIZES, self.SETTINGS), kept)
            kept = result.kept
            counts.append((hits(kept), len(moved(result))))
        assert counts == [(1, 0), (2, 0), (3, 0), (0, 2), (1, 0)]

    def test_a_run_in_balance_starts_anew(self):
        calm = dict.fromkeys(LOADS, 50)
        result = shed(cluster(calm, dict.fromkeys(LOADS, (1, 2)), self.SETTINGS), THREE_HITS)
        assert hits(result.kept) == 0
        assert set(reasons(result).values()) == {"balanced"}

    def test_a_forced_run_does_not_wait(self):
        assert len(moved(shed(cluster(LOADS, SIZES, self.SETTINGS, forced=True), NOTHING))) == 2


class TestAverages:
    def run(self, brokers, kept):
        return shed(sample(brokers, []), kept).kept

    def test_those_of_the_broker_are_taken_and_not_kept(self):
        brokers = [broker("b1", 90, load_average=0.5, throughput_average=7.0), broker("b2", 50, throughput=9)]
        kept = self.run(brokers, NOTHING)
        assert kept == ShedderState(loads={"b2": 0.5}, throughputs={"b2": 9.0})

    def test_a_broker_left_out_keeps_them_and_one_that_is_gone_does_not(self):
        before = ShedderState(
            loads={"b1": 0.4, "b2": 0.7, "gone": 0.5}, throughputs={"b1": 10.0, "b2": 20.0, "gone": 1.0}
        )
        kept = self.run([broker("b1", 50), broker("b2", 99, left_out="broker_quarantined")], before)
        assert kept.loads == pytest.approx({"b1": 0.41, "b2": 0.7})
        assert kept.throughputs == pytest.approx({"b1": 9.0, "b2": 20.0})


@pytest.mark.parametrize(
    ("change", "more", "expected"),
    [
        ({}, {"unloaded_brokers": {"b1": 179.0}}, dict.fromkeys(LOADS, "cool_down")),
        ({}, {"unloaded_brokers": {"b1": 180.0}}, {"b5": "fired"}),
        ({"b3": {"report_age_seconds": 1800}}, {}, {"b5": "fired", "b3": "middle"}),
        ({"b1": {"report_age_seconds": 1801}}, {"unloaded_brokers": {"b1": 100.0}}, {"b1": "outdated"}),
        ({name: {"report_age_seconds": 1801} for name in LOADS}, {}, dict.fromkeys(LOADS, "outdated")),
        ({"b5": {"left_out": "report_missing"}}, {}, {"b5": "report_missing", "b4": "fired"}),
    ],
)
def test_what_cannot_be_judged_says_why(change, more, expected):
    settings = UPSTREAM.model_copy(update={"hit_count_transfer": 5 if "b1" in change else 0})
    brokers, bundles = listed(LOADS, SIZES)
    given = sample([row | change.get(row["broker"], {}) for row in brokers], bundles, settings, **more)
    result = shed(given, NOTHING)
    check(given, result)
    assert reasons(result).items() >= expected.items()


@pytest.mark.parametrize(
    ("sizes", "reason", "held"),
    [((), "no_top_bundles", "it has no top bundles"), ((5,), "single_bundle", "its single bundle stays")],
)
def test_a_source_without_a_second_bundle_gives_none(sizes, reason, held):
    first = shed(cluster(LOADS, SIZES | {"b5": sizes}), NOTHING).decisions[0]
    assert (first.source, first.reason, first.fired) == ("b5", reason, False)
    assert str(first.explanation).endswith(f"b5 gives none, {held}")


def test_every_broker_is_told_why_it_sheds_or_not():
    sizes = SIZES | {"b5": (2, 2, 40)}
    result = shed(cluster(LOADS, sizes, UPSTREAM.model_copy(update={"max_brokers_per_run": 1})), NOTHING)
    assert [(row.source, row.destination, row.reason) for row in result.decisions] == [
        ("b5", "b1", "fired"),
        ("b4", None, "cap_brokers"),
        ("b3", None, "cap_brokers"),
        ("b2", None, "cap_brokers"),
    ]
    assert [row.source_score for row in result.decisions] == pytest.approx([90, 80, 6, 4])
    first = result.decisions[0]
    assert (first.destination_score, first.gap) == pytest.approx((2, 88))
    assert [row.explanation for row in completed(result)[:2]] == [
        "overloaded: standard deviation of the loads 0.398, above 0.25; 20.51 MiB/s must leave b5. "
        "Taken: 2 bundles with 3.81 MiB/s. Passed over: last_bundle 1.",
        "load 80.0%; no more than 1 broker may shed in one run",
    ]
    assert [(move.bundle, move.reason) for move in result.moves] == [
        ("t/b5/1", "taken"),
        ("t/b5/2", "taken"),
        ("t/b5/3", "last_bundle"),
    ]
    assert result.sentence == "1 pair of brokers considered, then no more than 1 broker may shed in one run"


def test_names_break_ties_whatever_the_order_of_the_rows():
    loads = {f"b{n}": 90 if n < 3 else 10 for n in range(6)}
    brokers, bundles = listed(loads, dict.fromkeys(loads, (3, 3, 3)))
    bundles = [row | {"top_rank": None} for row in bundles]
    result = whatever_the_order(
        lambda brokers, bundles: shed(sample(brokers, bundles, UPSTREAM), NOTHING), brokers, bundles
    )
    assert [(row.source, row.destination) for row in result.decisions][:2] == [("b2", "b3"), ("b1", "b4")]


@pytest.mark.parametrize(
    ("outliers", "common", "mean_and_std", "expected"),
    [
        ({"hot": (100, (30, 70))}, (1, (0.3, 0.7)), (0.0199, 0.0985), ("hot", "b00")),
        (
            {"hot": (99, (30, 70)), "cold": (1, (0.3, 0.7))},
            (98, (30, 70)),
            (0.9704, 0.09652895938523735),
            ("hot", "cold"),
        ),
    ],
)
def test_outliers_of_a_hundred_brokers_are_found(outliers, common, mean_and_std, expected):
    """Upstream's cases, with names that decide among the many."""
    figures = dict.fromkeys((f"b{n:02}" for n in range(100 - len(outliers))), common) | outliers
    given = cluster({n: cpu for n, (cpu, _) in figures.items()}, {n: sizes for n, (_, sizes) in figures.items()})
    spread = LoadStats(broker_loads(given, NOTHING)[0], UPSTREAM)
    assert (spread.mean, spread.std) == pytest.approx(mean_and_std, abs=1e-5)
    source, destination = expected
    assert moved(shed(given, NOTHING)) == [(f"t/{source}/1", source, destination, "Underloaded")]
