import pytest
from tests.include.pulsar_rebalancer.strategies.shedders.transfer_shedder_results import hits, moved
from tests.vectors.rows import broker, bundle, check, reasons, sample

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.shedders.transfer_shedder import shed

NOTHING = ShedderState()

MILLION = 1e6
UPSTREAM = Settings(credit_swaps=True, hit_count_transfer=0, max_brokers_per_run=10)
LOADS = {"b1": 2, "b2": 4, "b3": 6, "b4": 80, "b5": 90}
SIZES = {"b1": (1, 2), "b2": (1, 3), "b3": (2, 4), "b4": (2, 6), "b5": (2, 7)}


def cluster(loads, sizes, settings=UPSTREAM, reason=None, averages=None, **more):
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


SWAP = {"loads": {"a": 48, "b": 100}, "sizes": {"a": (2.4, 2.4), "b": (5, 5)}}


class TestSwaps:
    @pytest.mark.parametrize(
        ("reason", "swapped"),
        [
            ("recently_unloaded", True),
            *((why, False) for why in ("bundle_excluded", "bundle_excluded", "system_namespace", "to_be_split")),
        ],
    )
    def test_bundle_that_must_stay_is_not_swapped(self, reason, swapped):
        result = shed(cluster(**SWAP, reason={"a": reason}), NOTHING)
        assert [move.source for move in result.moves if move.is_taken] == (["b", "a"] if swapped else [])

    def test_policies_are_asked_for_both_directions(self):
        asked = []

        def forbids(name, source, destination):
            asked.append((name, source, destination))
            return Reason.POLICY_FORBIDS if name in ("t/a/1", "t/b/2") else None

        result = shed(cluster(**SWAP, forbids=forbids), NOTHING)
        assert asked == [("t/b/1", "b", "a"), ("t/a/1", "a", "b"), ("t/a/2", "a", "b"), ("t/b/2", "b", "a")]
        assert result.moves[-1].reason == "policy_forbids"
        assert [move.bundle for move in result.moves if move.is_taken] == ["t/b/1", "t/a/2"]

    def test_without_transfer_nothing_comes_back_and_placement_names_the_destination(self):
        result = shed(cluster(**SWAP, settings=UPSTREAM.model_copy(update={"transfer": False})), NOTHING)
        assert [(move.reason, move.destination) for move in result.moves] == [
            ("over_remaining", None),
            ("not_reached", None),
        ]


@pytest.mark.parametrize(("switch", "expected"), [(False, ["t/b4/1"]), (True, ["t/b5/1", "t/b4/1"])])
def test_bundles_under_policies_move_when_the_switch_is_on(switch, expected):
    brokers, bundles = listed(LOADS, SIZES)
    for row in bundles:
        row["policy"] = "isolation" if row["broker"] == "b5" else None
    settings = UPSTREAM.model_copy(update={"shed_policy_bundles": switch})
    result = shed(sample(brokers, bundles, settings), NOTHING)
    assert [move.bundle for move in result.moves if move.is_taken] == expected
    assert "policy_forbids" not in {move.reason for move in result.moves} or not switch


class TestHits:
    SETTINGS = UPSTREAM.model_copy(update={"hit_count_transfer": 3})

    def test_more_than_three_runs_in_a_row_out_of_balance(self):
        state, counts = NOTHING, []
        for _ in range(5):
            result = shed(cluster(LOADS, SIZES, self.SETTINGS), state)
            state = result.state
            counts.append((hits(state), len(moved(result))))
        assert counts == [(1, 0), (2, 0), (3, 0), (0, 2), (1, 0)]


class TestAverages:
    def run(self, brokers, state):
        return shed(sample(brokers, []), state).state

    def test_averages_of_the_broker_replace_the_state(self):
        brokers = [broker("b1", 90, load_average=0.5, throughput_average=7.0), broker("b2", 50, throughput=9)]
        state = self.run(brokers, NOTHING)
        assert state == ShedderState(loads={"b2": 0.5}, throughputs={"b2": 9.0})


@pytest.mark.parametrize(
    ("change", "more", "expected"),
    [
        ({}, {"unloaded_brokers": {"b1": 179.0}}, dict.fromkeys(LOADS, "cool_down")),
        ({}, {"unloaded_brokers": {"b1": 180.0}}, {"b5": "fired"}),
        ({"b3": {"report_age_seconds": 1800}}, {}, {"b5": "fired", "b3": "no_partner"}),
        ({"b1": {"report_age_seconds": 1801}}, {"unloaded_brokers": {"b1": 100.0}}, {"b1": "outdated"}),
        ({name: {"report_age_seconds": 1801} for name in LOADS}, {}, dict.fromkeys(LOADS, "outdated")),
        ({"b5": {"left_out": "report_missing"}}, {}, {"b5": "report_missing", "b4": "fired"}),
    ],
)
def test_broker_that_cannot_be_judged_has_a_reason(change, more, expected):
    settings = UPSTREAM.model_copy(update={"hit_count_transfer": 5 if "b1" in change else 0})
    brokers, bundles = listed(LOADS, SIZES)
    given = sample([row | change.get(row["broker"], {}) for row in brokers], bundles, settings, **more)
    result = shed(given, NOTHING)
    check(given, result)
    assert reasons(result).items() >= expected.items()
