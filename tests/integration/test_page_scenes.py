"""The page as an operator meets it: Airflow's own server and scheduler, real runs behind every state, a real browser.

Every scene has a cluster of its own, whose DAGs are paused until it begins. `make scenes` plays all scenes; with the
other tests, only those that are `always` played are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.accessibility import assert_accessible
from tests.integration.page_scene import asked_for, press, show, told
from tests.integration.page_stage import Part, Stage, stages

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

WAITS: dict[str, Any] = {
    "mode": "auto",
    # One run a day: the first one is due as soon as the DAG is unpaused.
    "interval_seconds": 86400,
    "max_plan_age_seconds": 3600,
    "host_usage_interval_minutes": 1 / 60,
    "low_threshold": 5,
    "max_bundles_per_run": 4,
}
BOXES = "[...document.querySelectorAll('dialog [name=broker]')]"
FIRES = WAITS | {"hit_count_low": 1, "hit_count_high": 1}


def scene(part: Part, *, always: bool = False) -> pytest.MarkDecorator:
    """A test is a scene with this cluster."""
    marks = () if always else (pytest.mark.scenes,)
    return pytest.mark.parametrize("stage", [pytest.param(part, id=part.name, marks=marks)], indirect=True)


@pytest.fixture(scope="module")
def all_stages(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dict[str, Stage]]:
    """The stages of the scenes that are played."""
    chosen = [each.callspec.params.get("stage") for each in request.session.items if hasattr(each, "callspec")]
    with stages(tmp_path_factory.mktemp("scenes"), dict.fromkeys(part for part in chosen if part)) as found:
        yield found


@pytest.fixture
def stage(all_stages: dict[str, Stage], request: pytest.FixtureRequest) -> Stage:
    return all_stages[request.param.name]


@scene(Part("east", WAITS, brokers=8, bundles=200), always=True)
def test_waiting_and_paused(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting", "apart, hit 1 of")
    stage.draw("east")
    stage.opens("Stop…", "Pause…", "Skip next run…", "Balance now…")

    assert stage.presses("Pause…", "a party") == "success"
    stage.says("paused", "by admin: a party")
    stage.opens("Resume…")
    assert stage.presses("Resume…", "it is over") == "success"
    stage.says("waiting")


@scene(Part("moves", FIRES | {"unload_concurrency": 1}), always=True)
def test_looking_moving_and_moved(stage: Stage) -> None:
    stage.cluster.faults.add("slow", path="/unload", amount=20, times=1)
    os.mkfifo(stage.pipe)
    stage.begin()
    stage.says("looking", "nothing decided yet")

    press(stage.chromium, "Balance now…", "a broker was added")
    told(stage.chromium, "waiting for its turn")
    stage.chromium.run("document.querySelector('.orders li button').click()")
    stage.chromium.until("document.querySelector('dialog[open]')?.innerText.includes('Cancel: Balance now')")
    assert_accessible(stage.chromium)
    stage.chromium.press("Enter", 13)
    told(stage.chromium, "cancelled before it began.")

    stage.pipe.write_bytes(b"")
    stage.pipe.unlink()
    stage.says("moving", "0 done so far")
    assert stage.ended() == "success"
    stage.says("moved", "each verified on its new broker")


@scene(Part("asks", FIRES | {"mode": "approve"}))
def test_a_plan_is_approved_and_the_next_rejected(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("would move", "waits for a person's approval", "waits for approval until")
    stage.draw("acts")
    stage.opens("Approve…", "Reject…")
    press(stage.chromium, "Approve…", "it is quiet now")
    assert stage.ended("apply") == "success"
    assert stage.ended(number=2) == "success"
    stage.says("moved", "each verified on its new broker", "by admin")

    assert stage.presses("Balance now…", "a broker was added", "rebalance") == "success"
    stage.says("would move", "waits for approval until")
    press(stage.chromium, "Reject…", "wrong hour")
    assert stage.ended("apply", 2) == "success"
    stage.says("held back", "was rejected by admin: wrong hour.")
    assert stage.presses("Balance now…", "try again", "rebalance") == "success"
    stage.says("held back", "A person rejected exactly these moves")


@scene(Part("trips", FIRES | {"breaker": {"failed_moves": 2}}))
def test_moves_that_fail_trip_the_breaker(stage: Stage) -> None:
    stage.cluster.faults.add("forbidden", path="/unload")
    stage.begin()
    assert stage.ended() == "failed"
    stage.says("held back", "circuit breaker open until")
    stage.opens("Close breaker…")
    stage.cluster.faults.clear()
    assert stage.presses("Close breaker…", "the token may unload again") == "success"
    stage.chromium.until("!document.querySelector('.force')?.textContent.includes('circuit breaker open')")


@scene(Part("blocked", WAITS))
def test_blocked_by_validation(stage: Stage) -> None:
    stage.cluster.faults.add("not_listed")
    stage.begin()
    assert stage.ended() == "failed"
    stage.says("blocked", "Fewer than two brokers can be compared.")


STALE = Part("stale", WAITS | {"interval_seconds": 60})


@scene(STALE)
def test_a_run_that_cannot_ask_the_brokers(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting")
    stage.cluster.faults.add("unauthorized")
    stage.says("failed", "The newest run failed in collect (unauthorized)")


@scene(Part("locked", WAITS))
def test_unreadable_while_the_storage_is(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting")
    runs = stage.airflow.home.storage / stage.name / "runs"
    runs.rename(runs.with_name("away"))
    runs.symlink_to("runs")
    stage.says("unreadable", "storage_failed")
    assert stage.chromium.run("document.querySelector('[data-key=\"act Pause…\"]:enabled') !== null")
    runs.unlink()
    runs.with_name("away").rename(runs)
    stage.says("waiting")


@scene(Part("damaged", WAITS | {"mode": "approve"}))
def test_orders_and_approvals_that_cannot_be_read(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.damages("answers")
    stage.says("waiting", "Approvals cannot be read: ")
    stage.damages("control")
    stage.says("held back", "what people ordered cannot be read: ")
    stage.damages("drains")
    stage.says("held back", "Which brokers are drained cannot be read: ")


SPLITS = WAITS | {"mode": "approve", "split_mode": "auto", "loadBalancerNamespaceBundleMaxMsgRate": 1}


@scene(Part("splits", SPLITS))
def test_a_split_waits_for_approval(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("would move", "A split is for ever", "waits for approval until")
    dialog = stage.opens("Reject…", "Approve…")
    assert "A split is for ever: Pulsar cannot merge bundles." in dialog
    assert "clients reconnect." in dialog


DRAINED = "document.querySelector('section.drains')"


@scene(Part("drained", WAITS | {"interval_seconds": 20, "max_bundles_per_run": 100}))
def test_a_broker_is_drained_until_it_is_released(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.open()
    stage.opens("Unload…", "Drain…", "Fill…", "Relieve…", "Split…")
    stage.plans("Drain…", f"{BOXES}[0].click()")
    told(stage.chromium, "done Drained; the next runs move the bundles.")
    stage.until(lambda: stage.open() and stage.chromium.run(f"{DRAINED}?.innerText.includes('no bundle is left')"))
    stage.says("moved", "drained by admin: a test")

    stage.opens("Release…")
    before = len(stage.airflow.runs(stage.dag("by_hand")))
    asked_for(stage.chromium, "Release…", f"{BOXES}.forEach((box) => box.click())")
    stage.chromium.run("document.querySelector('dialog button[type=submit]').click()")
    assert stage.ended("by_hand", before + 1) == "success"
    told(stage.chromium, "done Released.")
    stage.chromium.until(f"{DRAINED}.innerText === ''")


@scene(Part("unloads", WAITS))
def test_bundles_are_unloaded_and_brought_back(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.open()
    before = stage.cluster.true_scores()
    stage.plans("Unload…", "document.querySelector('dialog [name=bundles]').value = 'acme/orders'")
    assert stage.ended(number=2) == "success"
    stage.says("moved", "each verified on its new broker")
    assert stage.cluster.true_scores() != before

    stage.plans("Undo run…", "")
    assert stage.ended(number=3) == "success"
    stage.says("moved", "each verified on its new broker")
    assert stage.cluster.true_scores() == pytest.approx(before)


@scene(Part("large", WAITS, brokers=200, bundles=2000))
def test_two_hundred_brokers(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting")
    stage.draw("large")


@scene(STALE)
def test_stale_once_no_run_has_looked_for_three_intervals(stage: Stage) -> None:
    stage.says("stale", "The newest run failed in collect (unauthorized)")


@scene(STALE)
def test_the_list_says_of_each_cluster_what_its_page_says(stage: Stage, all_stages: dict[str, Stage]) -> None:
    def listed() -> Any:
        show(stage.chromium, f"{stage.airflow.home.url}/pulsar_rebalancer/page")
        cards = "[...document.querySelectorAll('.clusters a')]"
        parts = "['b', '.word'].map((part) => card.querySelector(part).textContent)"
        return dict(stage.chromium.run(f"{cards}.map((card) => {parts})"))

    # Runs go on meanwhile.
    stage.until(lambda: listed() == {name: each.word() for name, each in all_stages.items()} == listed())
    assert_accessible(stage.chromium)
