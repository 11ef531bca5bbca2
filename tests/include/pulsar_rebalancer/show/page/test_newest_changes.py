"""Which run moved bundles last, and when the cluster changed last."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.include.pulsar_rebalancer.show.page.test_status import scene
from tests.overview_scene import JUST_NOW, NOW, Scene, seen

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import Outcome, not_moved
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.show.page import overview
from pulsar_rebalancer.show.page.page_model import MovedRun

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from pulsar_rebalancer.storage.path import StoragePath


def stopped(made: Scene, at: datetime) -> StoragePath:
    """A run whose gate opened, and that was stopped before its first bundle."""
    folder = made.run(at)
    outcome, moves = Outcome.read(folder), read_moves(folder)
    assert moves
    none = tuple(not_moved(move, Reason.STOPPED) for move in moves)
    outcome.model_copy(update={"moves": none, "harm": None}).write(folder)
    return folder


def test_a_run_that_was_stopped_before_its_first_bundle_moved_nothing(tmp_path: Path) -> None:
    made = scene(tmp_path, hit_count_high=1)
    moved = made.run(JUST_NOW - timedelta(minutes=2))
    made.owned = scene(tmp_path).owned
    folder = stopped(made, JUST_NOW)

    found = seen(made)

    assert found.plan is not None
    assert (found.folder, found.plan.done, found.plan.verdict) == (folder.name, 0, "open")
    assert found.last is not None
    assert found.last.folder == moved.name
    assert found.moved == MovedRun(folder=moved.name, collected_at=JUST_NOW - timedelta(minutes=2))
    assert found.status.score_range == pytest.approx(68, abs=3), "still that of its own sample"


def test_what_can_be_undone_is_the_newest_run_that_moved_not_one_that_only_split(tmp_path: Path) -> None:
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


def test_the_page_of_a_run_knows_what_it_moved_and_when_bundles_moved_last(tmp_path: Path) -> None:
    made = scene(tmp_path, hit_count_high=1)
    first = made.run(JUST_NOW - timedelta(minutes=2))
    made.owned = scene(tmp_path).owned
    made.run(JUST_NOW)
    quiet = made.run(NOW - timedelta(seconds=5))
    entry = ClusterEntry(name="east", given={}, settings=made.settings)

    pages = [overview.of_one_run(made.storage, entry, folder, NOW) for folder in (first, quiet)]

    assert [page and page.moved and page.moved.folder for page in pages] == [first.name, None]
    assert [page and page.changed_at for page in pages] == [JUST_NOW + timedelta(seconds=20)] * 2
