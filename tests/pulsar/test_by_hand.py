"""Plans made by hand on real brokers: to and fro, a drain without a lost message, a broker killed while it is drained.

They run the extensible load manager. A namespace with more topics than a bundle may have is split by the first run
that serves the drain.
"""

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

from pathlib import Path
from typing import Any

import pytest
from tests.integration.airflow_world import Outcome, World, dags
from tests.integration.conftest import _database, one_session  # noqa: F401 - fixtures
from tests.patience import awaited
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.java import SHORT_SESSION
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import connection, load_broker_zero

from pulsar_rebalancer.carry_out.move_history import WaveHistory
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Summary, read_moves

BUNDLES, CAP = 6, 4  # more than the cap lets go at once: a drain takes two runs
CROWDED, TOPICS = "tests/crowded", 3
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    "interval_seconds": 5,
    "state_max_gap": 1000,
    "max_plan_age_seconds": 3600,
    # Nothing moves by itself.
    "hit_count_low": 10_000,
    "hit_count_high": 10_000,
    "max_bundles_per_broker": CAP,
    "unload_concurrency": 1,
    "move_timeout_seconds": 90,
    "split_mode": "auto",
    "split_algorithm": "topic_count_equally_divide",
    "max_bundle_topics": TOPICS - 1,
    "hit_count_split": 0,
    "unload_split_bundles": False,
}
# The machine is as busy as it is: what a prediction makes of that is tried elsewhere.
BUSY = {"overrule": ["overload", "grace_period"], "reason": "new disks"}


def acted(hand: World, **form: Any) -> None:
    """Have a plan shown, and carried out by its hash."""
    shown = hand.run("by_hand", **form)
    assert shown.states["plan"] == "success", shown.xcom("plan", "failure")
    done = hand.run("by_hand", plan=shown.xcom("plan")["plan"])
    assert done.states["carry_out"] == "success", done.xcom("carry_out", "failure")


def moved(hand: World, **form: Any) -> Outcome:
    """The run that carries out what a form asks for: one bundle."""
    acted(hand, **form)
    (waiting,) = hand.queued()
    run = hand.begin(waiting)
    assert run.state == "success", run.states
    summary, written = Summary.read(run.folder), Written.read(run.folder)
    assert written.move_counts == {"moved": 1}, (written.verdict, summary.bundle_skip_reasons)
    assert getattr(summary.by_hand, "by", None) == "tester"
    return run


@pytest.mark.usefixtures("one_session")
def test_manual_plans_unload_drain_split_and_undo(
    pulsar_501: Distribution, clusters: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(pulsar_501, bookie=True, extensible=True, extra=SHORT_SESSION)
    zero, one, two = cluster.broker_ids
    with Admin(cluster, broker=2) as admin, dags("hand", tmp_path, connection(cluster), **SETTINGS) as root:
        topics = load_broker_zero(admin, ["tests/hand"], BUNDLES, "persistent")
        (whole,) = admin.create_namespace(CROWDED, 1)
        crowd = topics_in_bundles(CROWDED, [whole], TOPICS, "persistent")[whole]
        admin.move(CROWDED, whole, crowd[0], 2)
        rates = dict.fromkeys([*topics.values(), *crowd], 20.0)
        with Load(cluster, rates, tmp_path / "load.log", subscribed=True) as load:
            load.start()
            awaited(lambda: len(admin.get("broker-stats/topics", broker=0).get("tests/hand", ())) == BUNDLES)
            hand, first = World("hand", root), next(iter(topics))

            forth = moved(hand, action="unload", bundles=[first], destination=one, **BUSY)
            assert admin.owner(first) == one
            moved(hand, action="undo", run=forth.folder.name, overrule=["overload"], reason="to and fro")
            assert admin.owner(first) == zero

            acted(hand, action="drain", broker=zero, **BUSY)
            drained = [hand.run(), hand.run()]
            assert [Summary.read(run.folder).drains[zero].moving for run in drained] == [CAP, BUNDLES - CAP]
            assert Written.read(drained[1].folder).move_counts == {"moved": BUNDLES - CAP}
            planned = {move.bundle: move.destination for run in drained for move in read_moves(run.folder)}
            assert {bundle: admin.owner(bundle) for bundle in topics} == planned
            # AvgShedder's placement draws for each bundle: in one of 32 drains all six go to the same broker.
            assert set(planned.values()) <= {one, two}
            (split,) = Written.read(drained[0].folder).splits
            assert (split.reason, split.bundle) == ("split", f"{CROWDED}/{whole}")
            assert len(admin.ranges(CROWDED)) == 2
            assert hand.run("by_hand", action="release", broker=zero, reason="the disks are in").state == "success"

            # A broker that dies when the first of its bundles has left.
            killed: list[int] = []
            noted = WaveHistory.add_outcome

            def add(history: WaveHistory, *outcome: Any) -> None:
                noted(history, *outcome)
                if not killed:
                    cluster.kill_broker(1)
                    killed.append(1)

            monkeypatch.setattr(WaveHistory, "add_outcome", add)
            acted(hand, action="drain", broker=one, **BUSY)
            dying = hand.run()
            assert Written.read(dying.folder).move_counts[Reason.MOVED] >= 1
            awaited(lambda: admin.owners(topics) <= {zero, two})
            # A broker that is not listed may still serve: nobody knows what is left on it.
            awaited(lambda: Summary.read(hand.run_until_valid().folder).drains[one].bundles is None)
            assert killed == [1]
            report = load.report()
    assert report.keys() == rates.keys()
    for counts in report.values():
        assert counts.errors == 0
        assert counts.received == counts.acked == counts.sent > 0
