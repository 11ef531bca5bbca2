"""A replay grows with its variants, its samples and its bundles, not with the square of any: CPU time at four times."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from lab.benchmarks.recordings import START, write
from tests.project.test_growth import MOST, growth

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.snapshots import record
from pulsar_rebalancer.replay.variants import expand
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def replayed(folder: Path, *, variants: int = 6, samples: int = 15, bundles: int = 16) -> None:
    """Record and replay; bundles are of each of twenty brokers."""
    storage, target = ClusterStorage(str(folder), "bench"), StoragePath(str(folder / "recording"))
    write(storage, 20, bundles, samples)
    record(storage, Settings(), START, START + timedelta(minutes=samples), target)
    grid: list[dict[str, Any]] = [{"low_threshold": [1 + number / 10 for number in range(variants - 1)]}]
    *found, _ = replay(Recording.read(target), expand(grid, Settings()).variants, Settings())
    assert [len(each.ranges) for each in found] == [samples] * variants


@pytest.mark.parametrize(("what", "size"), [("variants", 6), ("samples", 15), ("bundles", 64)])
def test_a_replay_grows_with_what_it_is_made_of(tmp_path: Path, what: str, size: int) -> None:
    def prepared(size: int) -> Callable[[], None]:
        return lambda: replayed(tmp_path / str(size), **{what: size})

    assert growth(prepared, size) < MOST
