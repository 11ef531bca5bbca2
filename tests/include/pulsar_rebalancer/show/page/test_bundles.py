from datetime import timedelta
from pathlib import Path
from zlib import crc32

import pytest
from tests.overview_scene import JUST_NOW, NOW, Scene, broker, uneven

from pulsar_rebalancer.decide.stays import keeping_rules
from pulsar_rebalancer.names import is_in_bundle
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.show.page.bundles import MAX_FOUND_LISTED, find_bundles
from pulsar_rebalancer.show.page.page_model import FoundBundles
from pulsar_rebalancer.state import MovesState, Unload


def found(scene: Scene, part: str) -> FoundBundles:
    return find_bundles(scene.storage, part, NOW, keeping_rules)


def test_a_broker_shows_its_bundles_and_a_pair_that_has_not_fired_says_its_hits(tmp_path: Path) -> None:
    scene = Scene(str(tmp_path), uneven(4))
    scene.run(JUST_NOW)
    assert (answer := found(scene, "broker-0")) == found(scene, broker(0))
    assert answer.all == 10
    assert {each.broker for each in answer.bundles} == {broker(0)}
    assert answer.bundles[0].why.startswith(f"No rule keeps the bundle, but {broker(0)} sheds nothing. The gap ")
    assert "Hits: 1 of " in answer.bundles[0].why
    assert answer.bundles[0].reason == ""
    (colder, *_) = found(scene, broker(3)).bundles
    assert colder.why == (
        f"No rule keeps the bundle, but {broker(3)} sheds nothing, because its partner {broker(0)} is hotter."
    )


def test_a_bundle_that_did_not_fit_says_with_which_numbers(tmp_path: Path) -> None:
    scene = Scene(str(tmp_path), uneven(4), hit_count_low=1, hit_count_high=1)
    scene.owned[broker(0)][0] = 60.0
    folder = scene.run(JUST_NOW)
    moved = {move.bundle for move in read_moves(folder)}
    bundles = {each.bundle: each for each in found(scene, broker(0)).bundles}
    (large,) = [each for each in bundles.values() if each.reason == Reason.OVER_REMAINING][:1]
    assert large.why.startswith(f"{Reason.OVER_REMAINING.meaning} This bundle carries ")
    assert " that should move." in large.why
    assert moved & bundles.keys()
    assert all(bundles[name].reason == Reason.MOVED for name in moved & bundles.keys())


def test_a_move_that_failed_is_not_said_to_have_moved(tmp_path: Path) -> None:
    scene = Scene(str(tmp_path), uneven(4), mode="auto", hit_count_low=1, hit_count_high=1)
    (move, *_) = read_moves(scene.run(JUST_NOW, astray=1))
    (bundle,) = found(scene, move.bundle).bundles
    assert bundle.reason == Reason.UNKNOWN_OWNER
    assert bundle.why == f"The plan moves the bundle to {move.destination}. {Reason.UNKNOWN_OWNER.meaning}"


@pytest.mark.parametrize("grace", [10, 30])
def test_a_bundle_that_has_just_moved_says_when_it_may_move_again(tmp_path: Path, grace: int) -> None:
    scene = Scene(str(tmp_path), uneven(4), grace_period_minutes=grace)
    folder = scene.run(JUST_NOW)
    name = found(scene, "").bundles[0].bundle
    at = JUST_NOW - timedelta(minutes=5)
    unload = Unload(at=at, plan_id="p", source=broker(1), destination=broker(0), outcome=Reason.MOVED)
    StateBefore(moves=MovesState(unloads={name: unload})).write(folder)
    (bundle,) = found(scene, name).bundles
    again = at + timedelta(minutes=grace)
    assert bundle.reason == Reason.RECENTLY_UNLOADED
    assert f"The bundle was moved at {at:%H:%M} and may move again at {again:%H:%M} UTC." in bundle.why
    assert bundle.moved == f"{at:%H:%M} UTC from {broker(1)} to {broker(0)}"


def test_a_rule_names_itself_also_for_a_bundle_that_was_not_considered(tmp_path: Path) -> None:
    scene = Scene(str(tmp_path), uneven(4), excluded_namespaces=["acme/orders"], excluded_brokers=[broker(3)])
    scene.run(JUST_NOW)
    assert {each.reason for each in found(scene, broker(1)).bundles} == {Reason.NAMESPACE_EXCLUDED}


def test_a_topic_leads_to_its_bundle(tmp_path: Path) -> None:
    scene = Scene(str(tmp_path), uneven(4))
    scene.run(JUST_NOW)
    topic = "persistent://acme/orders/paid-partition-3"
    (bundle,) = found(scene, topic).bundles
    assert is_in_bundle(topic, bundle.bundle)
    low, high = (int(bound, 16) for bound in bundle.bundle.rpartition("/")[2].split("_"))
    assert low <= crc32(topic.encode()) < high
    assert found(scene, "persistent://acme/others/paid").bundles == ()


def test_the_answer_is_bounded(tmp_path: Path) -> None:
    scene = Scene(str(tmp_path), uneven(4), each=MAX_FOUND_LISTED)
    scene.run(JUST_NOW)
    answer = found(scene, "acme/")
    assert (len(answer.bundles), answer.all) == (MAX_FOUND_LISTED, 4 * MAX_FOUND_LISTED)
    assert found(scene, "nothing of this name") == FoundBundles(sampled_at=JUST_NOW)
