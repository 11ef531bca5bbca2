"""The page as an operator meets it: Airflow's own server and scheduler, real runs behind every state, a real browser.

Every scene has a cluster of its own, whose DAGs are paused until it begins.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.accessibility import assert_accessible
from tests.integration.page_scene import HOSTILE, asked_for, changed_in_file, press, told
from tests.integration.page_stage import Part, Stage, stages

from pulsar_rebalancer_airflow.options import CLUSTERS_VARIABLE

pytestmark = pytest.mark.system

WAITS: dict[str, Any] = {
    "mode": "auto",
    # One run a day: the first one is due as soon as the DAG is unpaused.
    "interval_seconds": 86400,
    "max_plan_age_seconds": 3600,
    "host_usage_interval_minutes": 1 / 60,
    "low_threshold": 5,
    "max_bundles_per_run": 4,
}
HEAR = """window.heard = []; const live = document.getElementById("live");
    new MutationObserver(() => window.heard.push(live.textContent)).observe(live, { childList: true })"""
BOXES = "[...document.querySelectorAll('dialog [name=broker]')]"
BALANCED = {"low_threshold": 100, "high_threshold": 100}
"""The brokers are in balance, whatever they carry."""
FIRES = WAITS | {"hit_count_low": 1, "hit_count_high": 1}


def scene(part: Part) -> pytest.MarkDecorator:
    """A test is a scene with this cluster."""
    return pytest.mark.parametrize("stage", [pytest.param(part, id=part.name)], indirect=True)


@pytest.fixture(scope="module")
def all_stages(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dict[str, Stage]]:
    """The stages of the scenes that are played."""
    chosen = [each.callspec.params.get("stage") for each in request.session.items if hasattr(each, "callspec")]
    with stages(tmp_path_factory.mktemp("scenes"), dict.fromkeys(part for part in chosen if part)) as found:
        yield found


@pytest.fixture
def stage(all_stages: dict[str, Stage], request: pytest.FixtureRequest) -> Stage:
    return all_stages[request.param.name]


@scene(Part("waits", WAITS))
def test_waiting_and_paused(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting", "(hit 1 of")
    stage.opens("Stop…", "Pause…", "Skip next run…", "Balance now…")

    stage.chromium.run(HEAR)
    assert stage.presses("Pause…", f"a party {HOSTILE}") == "success"
    for said in ("Pause: done", "paused until"):
        stage.chromium.until(f"window.heard.join().includes({json.dumps(said)})")
    stage.says("paused", f"(admin: a party {HOSTILE}")
    assert stage.chromium.run("document.querySelectorAll('main script').length") == 0
    stage.opens("Resume…")
    assert stage.presses("Resume…", "it is over") == "success"
    stage.says("waiting")

    assert stage.presses("Skip next run…", "a look first") == "success"
    stage.says("held back", "one run is skipped by admin: a look first")
    assert stage.presses("Stop…", "wrong hour") == "success"
    told(stage.chromium, "Not started: 0 bundles.")

    # A run of a paused DAG would wait, and then act unexpectedly.
    button = "document.querySelector('[data-key=\"act Stop…\"]')"
    for is_paused in (True, False):
        stage.asks("PATCH", f"/dags/{stage.dag('control')}", {"is_paused": is_paused})
        stage.open()
        assert stage.chromium.run(f"{button}.disabled") is is_paused
        why = stage.chromium.run(f"document.getElementById({button}.getAttribute('aria-describedby'))?.textContent")
        said = f"{stage.dag('control')} is paused in Airflow. Unpause the DAG to use its buttons."
        assert why == (said if is_paused else None)
        assert stage.chromium.run("document.querySelector('[data-key=\"act Balance now…\"]').disabled") is False


@scene(Part("moves", FIRES | {"unload_concurrency": 1}))
def test_looking_moving_and_moved(stage: Stage) -> None:
    stage.cluster.faults.add("slow", path="/unload", amount=20, times=1)
    os.mkfifo(stage.pipe)
    stage.begin()
    stage.says("looking", "there is no plan yet")

    press(stage.chromium, "Balance now…", "a broker was added")
    told(stage.chromium, "waiting for its turn")
    (cancelled,) = [run["dag_run_id"] for run in stage.airflow.runs(stage.dag()) if run["state"] == "queued"]
    stage.asks("PATCH", f"/dags/{stage.dag()}/dagRuns/{cancelled}", {"state": "failed"})
    told(stage.chromium, "cancelled before it began.")
    assert_accessible(stage.chromium)

    stage.pipe.write_bytes(b"")
    stage.pipe.unlink()
    stage.says("moving", "0 done so far")
    assert stage.chromium.run("document.querySelector('.plan progress').value") == 0
    assert stage.ended() == "success"
    stage.says("moved", "each verified on its new broker")
    rows = "[...document.querySelector('.plan table').querySelectorAll('tbody td:last-child')]"
    outcomes = stage.chromium.run(f"{rows}.map((each) => each.textContent)")
    assert outcomes
    assert all("moved" in outcome and outcome.endswith(" s") for outcome in outcomes)

    # What was cancelled asks no broker anything when its turn comes.
    stage.until(lambda: stage.states(cancelled).get("report") == "success")
    assert set(stage.states(cancelled).values()) <= {"skipped", "success", "upstream_failed"}
    assert stage.states(cancelled)["collect"] == "skipped"


@scene(Part("asks", FIRES | {"mode": "approve"}))
def test_a_plan_is_approved(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("awaiting approval", "needs a person's approval", "waits for approval until")
    stage.opens("Approve…", "Reject…")
    press(stage.chromium, "Approve…", "it is quiet now")
    assert stage.ended("apply") == "success"
    assert stage.ended(number=2) == "success"
    stage.says("moved", "each verified on its new broker")
    assert "by admin" in stage.chromium.run("document.querySelector('.plan h2').textContent")


@scene(Part("rejects", FIRES | {"mode": "approve", "two_people": True}))
def test_a_plan_is_rejected_and_nobody_approves_their_own(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("awaiting approval", "waits for approval until")
    press(stage.chromium, "Reject…", "wrong hour")
    assert stage.ended("apply") == "success"
    stage.says("held back", "was rejected by admin: wrong hour.")
    assert stage.presses("Balance now…", "try again", "rebalance") == "success"
    told(stage.chromium, "refused at the gate (rejected)")  # a page that is opened anew says it no more
    stage.says("held back", "A person rejected these moves")

    stage.plans("Unload…", "document.querySelector('dialog [name=bundles]').value = 'acme/orders'")
    assert stage.carries_out() == "success"
    assert stage.ended(number=3) == "success"
    stage.says("awaiting approval", "needs a person's approval")
    told(stage.chromium, "awaiting approval")
    button = "document.querySelector('[data-key=\"act Approve…\"]')"
    stage.chromium.until(button)  # the question's task may not wait for its answer yet
    assert stage.chromium.run(f"{button}.title") == "You requested this plan, so another person must approve it."
    assert stage.chromium.run(f"{button}.disabled") is True
    with stage.another_user():
        stage.open()
        assert stage.chromium.run(f"{button}.disabled") is False
        press(stage.chromium, "Approve…", "it is quiet now")
    assert stage.ended(number=4) == "success"
    stage.says("moved", "each verified on its new broker")


DRAINED = "document.querySelector('section.drains')"


@scene(Part("drained", WAITS | BALANCED | {"interval_seconds": 20, "max_bundles_per_run": 100}))
def test_a_broker_is_drained_until_it_is_released(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.open()
    stage.opens("Unload…", "Drain…", "Fill…", "Split…")
    stage.plans("Drain…", f"{BOXES}[0].click()")
    assert stage.carries_out() == "success"
    told(stage.chromium, "done The broker is marked as drained; the next runs move its bundles.")
    # Its heartbeat bundle, which never leaves it, does not count.
    stage.says("balanced", "drained by admin: a test", "no bundle remains.")
    # It may keep a bundle without topics, which no load report lists.
    drained = min(stage.cluster.state()["brokers"], key=lambda broker: broker["broker"])
    assert drained["msg_rate"] == 0

    stage.opens("Release…")
    asked_for(stage.chromium, "Release…", f"{BOXES}[0].click()")  # the one drained broker is ticked
    stage.clicks("button[type=submit]", "document.querySelector('dialog fieldset .wrong')")
    assert "Choose at least one broker." in stage.chromium.run("document.querySelector('dialog').innerText")
    assert "Nothing was started." in stage.chromium.run("document.querySelector('dialog').innerText")
    stage.chromium.press("Escape", 27)
    stage.chromium.until("!document.querySelector('dialog')")
    stage.releases()
    stage.chromium.until(f"{DRAINED}.innerText === ''")


@scene(Part("unloads", WAITS | {"max_awaiting_minutes": 0.002}))
def test_bundles_are_unloaded_and_brought_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.open()
    before = stage.cluster.true_scores()
    dialog = stage.plans("Unload…", "document.querySelector('dialog [name=bundles]').value = 'nobody/x\\nacme/orders'")
    assert "No bundle matches: nobody/x." in dialog
    # It is too old as soon as it is there.
    stage.chromium.until("document.querySelector('dialog .warn[role=status]').textContent.includes('too old')")
    assert stage.chromium.run("document.querySelector('dialog .carry').hidden")

    monkeypatch.setenv(CLUSTERS_VARIABLE, str(stage.airflow.home.clusters_file))
    changed_in_file(stage.name, max_awaiting_minutes=60)
    stage.plans_again()
    # A session that has ended loses nothing: signed in again, the same button goes on.
    cookies = stage.chromium.send("Network.getCookies")["cookies"]
    stage.chromium.send("Network.clearBrowserCookies")
    stage.chromium.run("document.querySelector('dialog .carry').click()")
    stage.chromium.until("document.querySelector('dialog .said').textContent.includes('Your session has expired')")
    stage.chromium.send("Network.setCookies", cookies=cookies)
    assert stage.carries_out() == "success"
    assert stage.ended(number=2) == "success"
    stage.says("moved", "each verified on its new broker")
    assert stage.cluster.true_scores() != pytest.approx(before)

    # The hottest broker was about at the limit, and is predicted to be there again.
    stage.plans("Undo run…", "document.querySelector('dialog [value=overload]').click()")
    assert stage.carries_out() == "success"
    assert stage.ended(number=3) == "success"
    stage.says("moved", "each verified on its new broker")
    assert stage.cluster.true_scores() == pytest.approx(before)

    coldest = min(before, key=lambda broker: before[broker])
    # What has just been brought back may move as well.
    fields = f"{BOXES}.find((box) => box.value === '{coldest}').click()"
    stage.plans("Fill…", f"{fields}; document.querySelector('dialog [value=grace_period]').click()")
    assert stage.carries_out() == "success"
    assert stage.ended(number=4) == "success"
    stage.says("moved", "each verified on its new broker")
    assert stage.cluster.true_scores()[coldest] > before[coldest]


@scene(Part("east", WAITS | {"interval_seconds": 20}, brokers=8, bundles=200))
def test_hits_are_counted_run_by_run(stage: Stage) -> None:
    stage.begin()
    assert stage.ended(number=4) == "success"
    stage.says("waiting", "(hit 4 of 8)")
    stage.draw("east")


SEARCH = "document.querySelector('.search input')"


@scene(Part("search", WAITS | {"interval_seconds": 20}))
def test_a_search_says_why_a_bundle_stays(stage: Stage) -> None:
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting")
    stage.chromium.size(390, 844)
    stage.open()
    hottest = stage.chromium.run("document.querySelector('svg.brokers [data-broker]').getAttribute('data-broker')")
    stage.chromium.run(
        "document.querySelector('svg.brokers [data-broker] rect').dispatchEvent("
        "new MouseEvent('click', { bubbles: true }))"
    )
    stage.chromium.until("document.querySelector('.search .found')")
    found = stage.chromium.run("document.querySelector('.search').innerText")
    assert f"{hottest} score " in found
    assert f"No rule keeps the bundle, but {hottest} sheds nothing. The gap is " in found
    assert stage.chromium.run("document.documentElement.scrollWidth") <= 390
    for theme in ("dark", "light"):
        stage.chromium.theme(theme)
        assert_accessible(stage.chromium)
    stage.chromium.size(1200, 900)

    bundle = stage.chromium.run("document.querySelector('.search tbody th').textContent")
    topic = f"persistent://{bundle.rpartition('/')[0]}/paid"
    stage.chromium.run(f"{SEARCH}.value = {json.dumps(topic)}; {SEARCH}.dispatchEvent(new Event('input'))")
    stage.chromium.until("document.querySelectorAll('.search tbody tr').length === 1")
    one = stage.chromium.run("document.querySelector('.search tbody th').textContent")
    asked_for(stage.chromium, f"Unload… {one}")
    assert stage.chromium.run("document.querySelector('dialog [name=bundles]').value") == one
    stage.chromium.press("Escape", 27)


@scene(
    Part("rolls", WAITS | BALANCED | {"interval_seconds": 20, "max_bundles_per_run": 100, "overloaded_threshold": 100})
)
def test_brokers_are_restarted_one_by_one(stage: Stage) -> None:
    stage.begin("by_hand", "control", "apply", "rebalance", "roll")
    assert stage.ended() == "success"
    stage.open()
    dialog = stage.plans("Restart…", "")  # none ticked: all
    rows = "document.querySelectorAll('dialog [data-key=restarts] tbody tr').length"
    assert stage.chromium.run(rows) == len(stage.cluster.state()["brokers"])
    assert "About " in dialog
    assert "move twice." in dialog
    stage.clicks(".carry", "!document.querySelector('dialog')")
    told(stage.chromium, "running")
    rows = "[...document.querySelectorAll('.roll tbody td')].map((each) => each.textContent)"
    stage.chromium.until(f"{rows}.includes('draining') || {rows}.includes('restart now')")
    assert_accessible(stage.chromium)
    asked_for(stage.chromium, "Stop roll…")
    hint = stage.chromium.run("document.querySelector('dialog p.more').textContent")
    assert "is released" in hint
    stage.chromium.press("Escape", 27)
    assert stage.presses("Stop roll…", "a test") == "success"
    stage.chromium.until("document.querySelector('.roll').innerText.includes('roll_stopped')")
    assert stage.ended("roll", 2) == "failed"
