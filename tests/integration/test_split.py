from collections.abc import Iterator

import numpy as np
import pytest
from tests.integration.airflow_world import Outcome, World, world

from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Split, read_moves, read_splits
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.scenario import build_cluster

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_session")]


@pytest.fixture(scope="module")
def large() -> tuple[str, int]:
    """The busiest bundle of the hot broker, and a message rate that it alone of all exceeds."""
    cluster = build_cluster(brokers=4, bundles=60, noise=NO_NOISE)
    scores = cluster.true_scores()
    hot = cluster.membership.find(max(scores, key=scores.__getitem__)).index
    rates = cluster.traffic.nominal_rates()
    carried = np.where(cluster.ownership.owner == hot, rates.msg_rate_in + rates.msg_rate_out, 0)
    return cluster.topology.bundles[int(carried.argmax())], int(np.sort(carried)[-2:].mean())


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory, large: tuple[str, int]) -> Iterator[World]:
    patient = {"interval_seconds": 5, "state_max_gap": 1000, "max_plan_age_seconds": 3600}
    acts = {"mode": "auto", "hit_count_low": 1, "hit_count_high": 1, "split_mode": "auto"}
    given = {"loadBalancerNamespaceBundleMaxMsgRate": large[1], "split_algorithm": "topic_count_equally_divide"}
    with world("split", tmp_path_factory.mktemp("split"), **acts, **given, **patient) as made:
        yield made


@pytest.fixture(scope="module")
def first(split: World) -> Outcome:
    return split.run()


@pytest.fixture(scope="module")
def done(first: Outcome) -> Split:
    (found,) = read_splits(first.folder)
    return found


def means_of(split: World) -> dict[str, dict[str, float]]:
    table = StoragePath(f"{split.storage.state.uri}/{split.decision().means}").read_table()
    return {row["bundle"]: row for row in table.to_pylist()}


def test_the_bundle_that_exceeds_the_limit_is_split_and_stays_where_it_is(split, large, first, done):
    assert first.state == "success"
    assert set(first.states.values()) == {"success"}
    assert (done.bundle, done.condition) == (large[0], "msg_rate")
    bounds = split.served.cluster.topology.boundaries(namespace_of(done.bundle))
    assert set(done.positions) <= set(bounds)
    written = Written.read(first.folder)
    assert [(each.bundle, each.reason, each.attempts, each.found) for each in written.splits] == [
        (done.bundle, "split", 1, done.positions)
    ]
    # the hot broker gave bundles away in the same run, and not this one
    assert written.moves
    assert {move.source for move in read_moves(first.folder)} == {done.broker}
    rows = (first.folder / "plan" / "moves.parquet").read_table().to_pylist()
    assert {row["reason"] for row in rows if row["bundle"] == done.bundle} == {"to_be_split"}
    assert [event["split"] for event in split.events()] == [1]


def test_its_parts_carry_on_with_their_share_of_its_means(split, first, done):
    before = means_of(split)[done.bundle]
    # so that value and mean differ: were it not carried on, the value would be the mean
    cluster = split.served.cluster
    for part in done.share_by_part:
        cluster.scale_load(0.5, bundle=part)
    cluster.samples.end_stats_period(cluster.clock.now(), cluster.ownership.owner)
    second = split.run()
    assert second.state == "success"
    means = means_of(split)
    assert done.bundle not in means
    for part, share in done.share_by_part.items():
        assert means[part]["samples"] == 2
        assert means[part]["msg_rate_in"] == pytest.approx(0.75 * share * before["msg_rate_in"], rel=0.01)
        assert means[part]["long_term_msg_rate"] == pytest.approx(0.75 * share * before["long_term_msg_rate"], rel=0.01)
    assert second.states["split"] == "skipped"
    assert read_splits(second.folder) == []
