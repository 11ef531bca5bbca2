from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import Snapshots

from pulsar_rebalancer.decide.plan_files import plan_document
from pulsar_rebalancer.decide.run_plan import plan_request, replan
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.run.plan import Summary, read_splits, verified_actions
from pulsar_rebalancer.run.request import parse_form
from pulsar_rebalancer.run.snapshot import Candidate, SplitCandidates, TopicLoad
from pulsar_rebalancer.storage.path import StoragePath

LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
BOUNDS = (0, 0x80000000, 0xFFFFFFFF)
TOPICS = (TopicLoad(0x10000000, 1.0, 9.0), TopicLoad(0x20000000, 1.0, 1.0), TopicLoad(0x30000000, 1.0, 1.0))


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    made = Snapshots(tmp_path, {"a": {LOW: 30.0, HIGH: 10.0}, "b": {}, "c": {}})
    made.topics = {LOW: 3, HIGH: 9}
    return made


def shown(
    snapshots: Snapshots, topics: tuple[TopicLoad, ...] = TOPICS, before: dict[str, Any] | None = None, **form: Any
) -> Summary:
    run = snapshots.take(**before or {})
    read = tuple(Candidate(bundle=bundle, bounds=BOUNDS, topics=topics) for bundle in (LOW, HIGH))
    SplitCandidates(bundles=read).write(run)
    return plan_request(snapshots.storage, run, parse_form({"action": "split"} | form), "ada")


@pytest.mark.parametrize(
    ("form", "bundle", "positions"),
    [
        ({"bundles": [LOW]}, LOW, (0x18000000,)),
        ({"bundles": ["t/n/HOT"]}, LOW, (0x18000000,)),
        ({"bundles": ["t/n/LARGEST"]}, HIGH, (0xBFFFFFFF,)),
        ({"bundles": [LOW], "algorithm": "topic_count_equally_divide"}, LOW, (0x18000000,)),
        (
            {"bundles": [LOW], "algorithm": "specified_positions_divide", "positions": ["0x15000000", 0x25000000]},
            LOW,
            (0x15000000, 0x25000000),
        ),
    ],
)
def test_which_bundle_is_cut_and_where(snapshots, form, bundle, positions):
    summary = shown(snapshots, **form)

    run = snapshots.storage.run_folder(summary.plan_id)
    assert run is not None
    moves, (split,) = verified_actions(run, summary)
    assert not moves
    assert (split.bundle, split.broker, split.positions, split.condition) == (bundle, "a:1", positions, "")
    shown_as = plan_document(summary, run, {})
    assert (shown_as["plan"], shown_as["splits"]) == (summary.hash, list(summary.splits_told))
    assert summary.sentence == f"split by hand: {summary.splits_told[0]}"
    assert summary.splits_told[0].startswith(f"{bundle} is split permanently at 0x{positions[0]:08x}")


def test_the_extensible_load_manager_is_given_one_position_or_nothing(snapshots):
    snapshots.load_manager = "ExtensibleLoadManagerImpl"
    form: dict[str, Any] = {"bundles": [LOW], "algorithm": "specified_positions_divide"}

    with pytest.raises(RebalancerError, match=r"extensible load manager accepts one position, not 2 .contradiction"):
        shown(snapshots, **form, positions=[0x15000000, 0x25000000])

    (split,) = read_splits(run_of(snapshots, shown(snapshots, **form, positions=[0x25000000])))
    assert split.positions == (0x25000000,)


@pytest.mark.parametrize("excluded", [{"excluded_namespaces": ("t/n",)}, {"excluded_brokers": ("a:1",)}])
def test_an_exclusion_may_be_overruled(snapshots, excluded):
    snapshots.settings = snapshots.settings.model_copy(update=excluded)

    with pytest.raises(RebalancerError, match="excluded"):
        shown(snapshots, bundles=[LOW])
    summary = shown(snapshots, bundles=[LOW], overrule=["exclusions"], reason="it is too large")

    assert [split.bundle for split in read_splits(run_of(snapshots, summary))] == [LOW]


def test_a_split_that_leaves_a_part_without_traffic_is_refused_unless_overruled(snapshots):
    form: dict[str, Any] = {"bundles": [LOW], "algorithm": "range_equally_divide"}

    with pytest.raises(RebalancerError) as refused:
        shown(snapshots, **form)
    assert refused.value.reason == "uneven_split"
    shares = "range_equally_divide: 100 %, 0 %; topic_count_equally_divide: 33 %, 67 %"
    assert f"parts of {LOW} would get uneven traffic: {shares}" in str(refused.value)

    summary = shown(snapshots, **form, overrule=["even_split"], reason="the other half fills up tomorrow")
    (split,) = read_splits(run_of(snapshots, summary))
    assert (split.positions, split.shares) == ((0x40000000,), (1.0, 0.0))


@pytest.mark.parametrize(("rates", "even"), [((89.0, 11.0), True), ((90.0, 10.0), True), ((91.0, 9.0), False)])
def test_ten_percent_is_enough_for_a_part(snapshots, rates, even):
    topics = (TopicLoad(0x10000000, rates[0], 0.0), TopicLoad(0x50000000, rates[1], 0.0))
    refused = nullcontext() if even else pytest.raises(RebalancerError, match="uneven_split")
    with refused:
        shown(snapshots, topics, bundles=[LOW])


def test_the_most_even_algorithm_is_chosen_and_the_shares_of_each_are_shown(snapshots):
    rates = {0x10000000: 3.0, 0x20000000: 3.0, 0x30000000: 3.0, 0x60000000: 9.0}

    summary = shown(snapshots, tuple(TopicLoad(at, rate, 0.0) for at, rate in rates.items()), bundles=[LOW])

    (split,) = read_splits(run_of(snapshots, summary))
    assert (split.positions, split.shares) == ((0x40000000,), (0.5, 0.5))
    shares = "topic_count_equally_divide: 33 %, 67 %; range_equally_divide: 50 %, 50 %"
    assert summary.splits_told[1] == f"Each part's share of the traffic, by algorithm: {shares}."


def run_of(snapshots: Snapshots, summary: Summary) -> StoragePath:
    run = snapshots.storage.run_folder(summary.plan_id)
    assert run is not None
    return run


@pytest.mark.parametrize(
    ("form", "topics", "reason"),
    [
        ({"bundles": ["t/n/0x00000000_0x10000000"]}, TOPICS, "unknown_name"),
        ({"bundles": ["nobody/HOT"]}, TOPICS, "unknown_name"),
        ({"bundles": ["no/body/HOT"]}, TOPICS, "unknown_name"),
        ({"bundles": [LOW]}, TOPICS[:1], "no_position"),
        ({"bundles": [LOW, HIGH]}, TOPICS, "wrong_setting"),
        ({"bundles": [LOW], "positions": [1]}, TOPICS, "wrong_setting"),
        ({"bundles": [LOW], "algorithm": "specified_positions_divide"}, TOPICS, "wrong_setting"),
        (
            {"bundles": [LOW], "algorithm": "specified_positions_divide", "positions": ["0x00000001"]},
            TOPICS,
            "no_position",
        ),
    ],
)
def test_wrong_split_is_refused(snapshots, form, topics, reason):
    with pytest.raises(RebalancerError) as refused:
        shown(snapshots, topics, **form)

    assert refused.value.reason == reason


def test_a_bundle_whose_topics_were_not_read_is_not_split(snapshots):
    with pytest.raises(RebalancerError, match="topics_unknown"):
        snapshots.show(action="split", bundles=[LOW])


def test_a_run_carries_out_the_split_that_was_shown(snapshots):
    plan = shown(snapshots, bundles=[LOW], unload=True)
    entry = snapshots.handed_over(plan).model_dump(mode="json")

    run = snapshots.take(params={"plan": plan.hash}, handed_over=entry)
    replan(snapshots.storage, run)

    (split,) = read_splits(run)
    assert (split.bundle, split.positions, split.unload) == (LOW, (0x18000000,), True)


@pytest.mark.parametrize(("owned", "topics"), [({"b": {LOW: 30.0}}, 3), ({"b": {}}, 0)], ids=["moved", "unreported"])
def test_a_split_is_carried_out_where_its_bundle_is_now(snapshots, owned, topics):
    plan = shown(snapshots, bundles=[LOW], unload=True)
    snapshots.owned = {"a:1": {HIGH: 10.0}, "b:1": owned["b"], "c:1": {}}
    entry = snapshots.handed_over(plan).model_dump(mode="json")

    summary = replan(snapshots.storage, snapshots.take(params={"plan": plan.hash}, handed_over=entry))

    assert summary.by_hand is not None
    assert (summary.bundles_split, summary.by_hand.topics) == (1, topics)
