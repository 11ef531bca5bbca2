"""The past as the page draws it, from folders of runs and from the tables of closed days."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.include.pulsar_rebalancer.show.page.test_status import EVEN, scene
from tests.overview_scene import NOW, history

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.maintenance.retention import maintain
from pulsar_rebalancer.maintenance.state_files import Needed
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding
from pulsar_rebalancer.show.page import timeline as past
from pulsar_rebalancer.show.page.timeline import Span, timeline
from pulsar_rebalancer.storage.cache import Cache

if TYPE_CHECKING:
    from pathlib import Path


def test_an_hour_has_what_was_moved_blocked_and_paused(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(NOW - timedelta(minutes=90))  # before the hour
    history(made, NOW - timedelta(minutes=40), 2)
    made.findings = (Finding(reason=Reason.TOO_FEW_BROKERS),)
    made.run(NOW - timedelta(minutes=30))
    made.findings = ()
    made.run(NOW - timedelta(minutes=20), verdict=Reason.PAUSED)
    made.run(NOW - timedelta(seconds=10), seconds=0)  # under way: not told yet

    found = timeline(made.storage, Span.HOUR, NOW)

    assert found.unread == 0
    assert (found.low_threshold, found.high_threshold) == (15, 40)
    assert sum(bucket.runs for bucket in found.buckets) == 4
    assert sum(bucket.moved for bucket in found.buckets) == 4
    assert [bucket.at for bucket in found.buckets if bucket.blocked] == [NOW - timedelta(minutes=30)]
    ranges = [bucket.highest for bucket in found.buckets if bucket.highest is not None]
    assert ranges[0] > 60 > 30 > ranges[-1]


def test_a_month_reads_days_that_are_closed_and_those_that_are_not(tmp_path: Path) -> None:
    made = scene(tmp_path)
    history(made, NOW - timedelta(days=3), 2)
    made.run(NOW - timedelta(minutes=5))
    report = maintain(made.storage, Settings(), Needed(frozenset(), frozenset()), NOW, dry_run=False)
    assert report
    assert not (made.storage.runs / f"date={(NOW - timedelta(days=3)).date()}").names()

    found = timeline(made.storage, Span.MONTH, NOW)

    assert sum(bucket.runs for bucket in found.buckets) == 3
    assert sum(bucket.moved for bucket in found.buckets) == 4
    assert found.unread == 0


def test_what_takes_too_long_is_read_on_with_the_next_question(tmp_path: Path) -> None:
    made = scene(tmp_path)
    history(made, NOW, 3)
    assert [timeline(made.storage, Span.HOUR, NOW, reading=0).unread for _ in range(3)] == [2, 1, 0]
    assert timeline(made.storage, Span.HOUR, NOW, reading=0).unread == 0  # what is known is not read again


@pytest.mark.parametrize("file", ["plan/summary.json", "outcome.json"])
def test_a_file_that_is_damaged_leaves_a_gap(tmp_path: Path, file: str) -> None:
    made = scene(tmp_path)
    folder = made.run(NOW - timedelta(minutes=5))
    (folder / file).write_bytes(b"damaged")
    (bucket,) = timeline(made.storage, Span.HOUR, NOW).buckets
    assert bucket.runs == 1
    assert (bucket.highest is None) == (file == "plan/summary.json")


def test_a_pause_is_told_whether_there_was_a_plan_or_not(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=EVEN)
    made.run(NOW - timedelta(minutes=3), closed=Reason.PAUSED)
    made.run(NOW - timedelta(minutes=2), closed=Reason.OBSERVE)
    made.run(NOW - timedelta(minutes=1))
    assert [bucket.paused for bucket in timeline(made.storage, Span.HOUR, NOW).buckets] == [1, 0, 0]


def test_what_has_ended_long_ago_is_read_once_and_kept_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = scene(tmp_path, loads=EVEN)
    history(made, NOW - timedelta(hours=5), 20)
    before = timeline(made.storage, Span.MONTH, NOW)
    monkeypatch.setattr(past, "_runs", Cache(1))

    assert timeline(made.storage, Span.MONTH, NOW, reading=0) == before
    assert sum(bucket.runs for bucket in before.buckets) == 20


def test_a_cache_keeps_no_more_than_its_limit() -> None:
    kept: Cache[str] = Cache(3)
    for key in "abc":
        kept.put(key, key)
    assert kept.get("a") == "a"
    kept.put("d", "d")
    kept.put("d", "e")
    assert [kept.get(key) for key in "abcd"] == ["a", None, "c", "e"]
    assert kept.put("large", "f", 10) == "f"
    assert (kept.get("large"), kept.get("a"), kept.weight) == ("f", None, 10)
