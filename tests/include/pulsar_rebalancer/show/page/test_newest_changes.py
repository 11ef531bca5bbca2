from datetime import timedelta

from tests.include.pulsar_rebalancer.show.page.test_status import scene
from tests.overview_scene import JUST_NOW, seen


def test_undo_offers_the_latest_run_that_moved(tmp_path):
    made = scene(tmp_path, hit_count_high=1)
    first = made.run(JUST_NOW - timedelta(minutes=2))
    made.splits = (made.to_split(31),)
    made.run(JUST_NOW - timedelta(minutes=1))

    found = seen(made)

    assert found.plan is not None
    assert (found.plan.bundles, found.plan.done, found.last) == (0, 1, None)
    assert found.moved is not None
    assert found.moved.folder == first.name
    assert found.changed_at == JUST_NOW - timedelta(minutes=1) + timedelta(seconds=20)
