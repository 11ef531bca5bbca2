"""The past as the page draws it, from folders of runs and from the tables of closed days."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.include.pulsar_rebalancer.show.page.test_status import scene
from tests.overview_scene import NOW, history

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.maintenance.retention import Needed, maintain
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding
from pulsar_rebalancer.show.page.timeline import Span, timeline


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
