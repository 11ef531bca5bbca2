from datetime import timedelta

from tests.include.pulsar_rebalancer.show.page.test_status import scene
from tests.overview_scene import NOW, history

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding
from pulsar_rebalancer.show.page.timeline import Event, make_timeline


def test_an_hour_has_its_ranges_what_moved_what_failed_and_who_ordered_it(tmp_path):
    made = scene(tmp_path)
    made.run(NOW - timedelta(minutes=90))  # before the hour
    history(made, NOW - timedelta(minutes=40), 2)
    made.findings = (Finding(reason=Reason.TOO_FEW_BROKERS),)
    made.run(NOW - timedelta(minutes=30))
    made.findings = ()
    made.run(NOW - timedelta(minutes=20))
    made.run(NOW - timedelta(seconds=10), seconds=0)  # under way: not told yet
    orders = [Event(at=NOW - timedelta(minutes=15), kind="order", text="pause by ada: disks")]
    silent, timeout = "failed in collect (broker_silent)", "timed out"
    texts = {12: silent, 11: silent, 10: timeout, 9: silent}
    failures = [Event(at=NOW - timedelta(minutes=ago), kind="failed", text=text) for ago, text in texts.items()]

    found = make_timeline(made.storage, made.settings, NOW, orders, failures)

    assert (found.unread, found.low_threshold, found.high_threshold) == (0, 15, 40)
    ago = {(NOW - point.at) / timedelta(minutes=1): point.range for point in found.points}
    assert list(ago) == [41, 40, 30, 20, 12, 11, 10, 9]
    assert [minutes for minutes, spread in ago.items() if spread is None] == [30, 12, 11, 10, 9]
    assert (ago[41] or 0) > 60 > 30 > (ago[20] or 0)
    assert [((NOW - event.at) / timedelta(minutes=1), event.kind, event.text) for event in found.events] == [
        (9, "failed", silent),
        (10, "failed", timeout),
        (12, "failed", f"2 runs: {silent}"),
        (15, "order", "pause by ada: disks"),
        (41, "moved", "4 bundles moved"),
    ]


def test_a_run_whose_moves_failed_says_so_and_who_asked_for_it(tmp_path):
    made = scene(tmp_path)
    made.run(NOW - timedelta(minutes=2))
    made.run(NOW - timedelta(minutes=1), astray=1)

    (event,) = make_timeline(made.storage, made.settings, NOW).events

    assert (event.kind, event.text) == ("failed", "3 bundles moved, 1 action failed")


def test_a_slow_storage_is_read_bit_by_bit(tmp_path):
    made = scene(tmp_path)
    history(made, NOW - timedelta(minutes=1), 3)

    left = [make_timeline(made.storage, made.settings, NOW, max_read_s=0.0).unread for _ in range(3)]

    assert left[0] == 2
