"""The page as an operator meets it: Airflow's own server and scheduler, real runs behind every state, a real browser.

Every scene has a cluster of its own. Its DAGs are paused until the scene begins. `make scenes` plays all of them.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser import browser
from tests.integration.page_scene import asked_for, press, show, told

from pulsar_rebalancer_airflow.embedded.airflow_home import SOURCE, AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow
from pulsar_rebalancer_airflow.embedded.processes import Processes
from pulsar_rebalancer_airflow.spark_archive import cached_archive
from pulsar_simulator.clock import RealClock
from pulsar_simulator.load import QUIET
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import build
from pulsar_simulator.serve import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.browser import Browser

    from pulsar_simulator.cluster import Cluster

pytestmark = pytest.mark.integration
long = pytest.mark.scenes

PICTURES = SOURCE / "docs" / "pictures" if os.environ.get("DRAW_PICTURES") else None
"""Where the pictures of the documents go when they are to be drawn again."""

WAITS: dict[str, Any] = {
    "mode": "auto",
    # One run a day: the first one is due as soon as the DAG is unpaused.
    "interval_seconds": 86400,
    "max_plan_age_seconds": 3600,
    "host_usage_interval_minutes": 1 / 60,
    "low_threshold": 5,
    "max_bundles_per_run": 4,
}
FIRES = WAITS | {"hit_count_low": 1, "hit_count_high": 1}
CLUSTERS: dict[str, dict[str, Any]] = {
    "east": WAITS,
    "moves": FIRES | {"unload_concurrency": 1},
    "asks": FIRES | {"mode": "approve"},
    "splits": WAITS | {"mode": "approve", "split_mode": "auto", "loadBalancerNamespaceBundleMaxMsgRate": 1},
    "trips": FIRES | {"breaker": {"failed_moves": 2}},
    "blocked": WAITS,
    "stale": WAITS | {"interval_seconds": 60},
    "drained": WAITS | {"interval_seconds": 20, "max_bundles_per_run": 100},
    "locked": WAITS,
    "large": WAITS,
}

ALWAYS = ("east", "moves")
"""Clusters of the scenes that are played with all other tests."""

DAGS = """
from pathlib import Path

from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.operators import DecideOperator

def held(operator, context):
    pipe = Path(__file__).with_name(f"{operator.dag_id}.pipe")
    if pipe.exists():
        pipe.read_bytes()  # until somebody writes into it

DecideOperator.pre_execute = held
globals().update(build_dags())
"""

BOXES = "[...document.querySelectorAll('dialog [name=broker]')]"
BUNDLES = "document.querySelector('dialog [name=bundles]')"


class Home(AirflowHome):
    """An Airflow whose task *decide* can be held, and whose DAGs wait to be unpaused."""

    def environment(self) -> dict[str, str]:
        folder = self.folder / "dags"
        folder.mkdir(exist_ok=True)
        (folder / "dags.py").write_text(DAGS)
        paused = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True", "AIRFLOW__CORE__DAGS_FOLDER": str(folder)}
        return super().environment() | paused


@dataclass(frozen=True)
class Stage:
    """One cluster, its DAGs, and its page."""

    name: str
    cluster: Cluster
    airflow: LocalAirflow
    chromium: Browser

    def dag(self, kind: str = "rebalance") -> str:
        """Id of a DAG of the cluster."""
        return f"pulsar_{kind}__{self.name}"

    def begin(self) -> None:
        """Let the scheduler run the cluster's DAGs."""
        for kind in ("by_hand", "control", "apply", "rebalance"):
            self.airflow.wait_for_dag(self.dag(kind))
            self.airflow._request("PATCH", f"/dags/{self.dag(kind)}", json={"is_paused": False})

    def ended(self, kind: str = "rebalance", number: int = 1) -> str:
        """Wait for the end of so many runs of a DAG; returns the state of the last."""
        runs = self.until(lambda: (found := self.airflow.runs(self.dag(kind))) and found[number - 1 :])
        return self.airflow.wait(self.dag(kind), runs[0]["dag_run_id"])["state"]

    def until(self, happened: Callable[[], Any]) -> Any:
        """What `happened` returns, once it is something; ten minutes at most."""
        for _ in self.airflow._polled(600):
            if found := happened():
                return found
        raise AssertionError(f"{happened} did not come true; the page says: {self.chromium.text()[:1500]}")

    def open(self) -> str:
        """Open the cluster's page; returns what is to be read."""
        return show(self.chromium, f"{self.airflow.home.url}/pulsar_rebalancer/page/{self.dag()}")

    def says(self, word: str, sentence: str = "") -> None:
        """Open the page until it says the word; check its sentence, and that nothing went wrong in the browser."""
        strip = f"document.querySelector('h1 .word')?.textContent === '{word}'"
        self.until(lambda: self.open() and self.chromium.run(strip))
        assert sentence in self.chromium.text()
        assert self.chromium.problems == []

    def presses(self, button: str, reason: str, kind: str = "control") -> str:
        """Press a button; returns the state of the run that it starts, once that has ended."""
        before = len(self.airflow.runs(self.dag(kind)))
        press(self.chromium, button, reason)
        return self.ended(kind, before + 1)

    def plans(self, button: str, fields: str) -> None:
        """Fill in a manual action, have its plan made, and carry it out from its dialog."""
        before = len(self.airflow.runs(self.dag("by_hand")))
        asked_for(self.chromium, button, fields)
        self.chromium.run("document.querySelector('dialog button[type=submit]').click()")
        assert self.ended("by_hand", before + 1) == "success"
        self.chromium.until("document.querySelector('dialog .carry:enabled')")
        self.chromium.run("document.querySelector('dialog .carry').click()")
        assert self.ended("by_hand", before + 2) == "success"
        self.chromium.until("!document.querySelector('dialog')")

    def draw(self, name: str) -> None:
        """Take the picture of the page in both themes, if pictures are to be drawn."""
        if PICTURES is None:
            return
        for theme in ("dark", "light"):
            self.chromium.theme(theme)
            self.open()
            picture = PICTURES / f"page-{name}-{theme}.png"
            self.chromium.picture(picture, whole=False)
            assert picture.stat().st_size < 150_000


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dict[str, Stage]]:
    """The clusters, one Airflow, and a browser whose user has logged in."""
    played = CLUSTERS if request.config.option.markexpr != "not scenes" else dict.fromkeys(ALWAYS)
    folder = tmp_path_factory.mktemp("scenes")
    timing = Timing(stats_period=1, host_check_period=1, report_max_interval=5)
    sizes = {"east": (8, 200), "large": (200, 2000)}
    clusters: dict[str, Cluster] = {}
    connections: dict[str, Any] = {"spark_default": {"conn_type": "spark", "host": "local[2]"}}
    with ExitStack() as stack:
        for name in played:
            brokers, bundles = sizes.get(name, (4, 60))
            clusters[name] = build(brokers=brokers, bundles=bundles, noise=QUIET, timing=timing, clock=RealClock())
            served = stack.enter_context(running(clusters[name]))
            host = ",".join(url.removeprefix("http://") for url in served.urls)
            connections[name] = {"conn_type": "pulsar_admin", "host": host, "password": served.token}
        home = Home(
            folder=folder / "airflow",
            clusters={name: CLUSTERS[name] | {"connection": name} for name in played},
            connections=connections,
            spark_archive=cached_archive(SOURCE / ".cache"),
        )
        home.prepare(keep=False)
        airflow = LocalAirflow(home, stack.enter_context(Processes()))
        airflow.start()
        chromium = stack.enter_context(browser())
        chromium.size(1200, 900)
        log_in(chromium, airflow)
        yield {name: Stage(name, cluster, airflow, chromium) for name, cluster in clusters.items()}


def log_in(chromium: Browser, airflow: LocalAirflow) -> None:
    """Log in by the form."""
    chromium.open(f"{airflow.home.url}/auth/login")
    for field, value in (("username", "admin"), ("password", airflow.password)):
        chromium.until(f"document.querySelector('input[name={field}]')")
        chromium.run(f"document.querySelector('input[name={field}]').focus()")
        chromium.write(value)
    chromium.press("Enter", 13)
    chromium.until("!location.pathname.startsWith('/auth')")


def test_waiting_and_paused(stages: dict[str, Stage]) -> None:
    stage = stages["east"]
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting", "apart, hit 1 of")
    stage.draw("east")

    assert stage.presses("Pause…", "a party") == "success"
    stage.says("paused", "by admin: a party")
    assert stage.presses("Resume…", "it is over") == "success"
    stage.says("waiting")


def test_looking_moving_and_moved(stages: dict[str, Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    stage, unloading, released = stages["moves"], threading.Event(), threading.Event()
    pipe = stage.airflow.home.folder / "dags" / f"{stage.dag()}.pipe"
    os.mkfifo(pipe)
    hop = stage.cluster.unload_at

    def unload_at(*given: Any, **more: Any) -> Any:
        unloading.set()
        released.wait()
        return hop(*given, **more)

    monkeypatch.setattr(stage.cluster, "unload_at", unload_at)
    try:
        stage.begin()
        stage.says("looking", "nothing decided yet")
        waiting = threading.Thread(target=partial(pipe.write_bytes, b""), daemon=True)
        waiting.start()
        stage.until(unloading.is_set)
        pipe.unlink()
        stage.says("moving", "0 done so far")
        released.set()
    finally:
        released.set()
    assert stage.ended() == "success"
    stage.says("moved", "each verified on its new broker")


@long
def test_a_plan_is_rejected_and_the_next_approved(stages: dict[str, Stage]) -> None:
    stage = stages["asks"]
    stage.begin()
    assert stage.ended() == "success"
    stage.says("would move", "waits for a person's approval until")
    stage.draw("acts")
    press(stage.chromium, "Reject…", "wrong hour")
    assert stage.ended("apply") == "success"
    stage.chromium.until("document.querySelector('.force').textContent.includes('rejected by admin: wrong hour')")

    press(stage.chromium, "Balance now…", "a broker was added")
    assert stage.ended(number=2) == "success"
    stage.until(lambda: len(stage.airflow.runs(stage.dag("apply"))) == 2)
    press(stage.chromium, "Approve…", "it is quiet now")
    assert stage.ended("apply", 2) == "success"
    assert stage.ended(number=3) == "success"
    stage.says("moved", "by admin")


@long
def test_a_split_waits_for_approval(stages: dict[str, Stage]) -> None:
    stage = stages["splits"]
    stage.begin()
    assert stage.ended() == "success"
    stage.says("would move", "A split is for ever")
    stage.chromium.until("document.querySelector('[data-key=\"act Approve…\"]')")
    stage.chromium.run("document.querySelector('[data-key=\"act Approve…\"]').click()")
    dialog = stage.chromium.until("document.querySelector('dialog[open]')?.innerText")
    assert "split for ever" in dialog
    assert "clients reconnect" in dialog


@long
def test_moves_that_fail_trip_the_breaker(stages: dict[str, Stage]) -> None:
    stage = stages["trips"]
    stage.cluster.faults.add("forbidden", path="/unload")
    stage.begin()
    assert stage.ended() == "failed"
    stage.says("held back", "circuit breaker open until")
    stage.cluster.faults.clear()
    assert stage.presses("Close breaker…", "the token may unload again") == "success"
    stage.chromium.until("!document.querySelector('.force')?.textContent.includes('circuit breaker open')")


@long
def test_blocked_by_validation(stages: dict[str, Stage]) -> None:
    stage = stages["blocked"]
    stage.cluster.faults.add("not_listed")
    stage.begin()
    assert stage.ended() == "failed"
    stage.says("blocked", "Fewer than two brokers can be compared.")


@long
def test_stale_once_no_run_has_looked_for_three_intervals(stages: dict[str, Stage]) -> None:
    stage = stages["stale"]
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting")
    stage.cluster.faults.add("unauthorized")
    stage.says("stale", "The newest run failed in collect (unauthorized)")


@long
def test_unreadable_while_the_storage_is(stages: dict[str, Stage]) -> None:
    stage = stages["locked"]
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting")
    runs = stage.airflow.home.storage / stage.name / "runs"
    runs.rename(runs.with_name("away"))
    runs.symlink_to("runs")
    stage.says("unreadable", "storage_failed")
    runs.unlink()
    runs.with_name("away").rename(runs)
    stage.says("waiting")


@long
def test_a_broker_is_drained_and_released_and_bundles_are_unloaded(stages: dict[str, Stage]) -> None:
    stage = stages["drained"]
    stage.begin()
    assert stage.ended() == "success"
    stage.open()
    stage.plans("Drain…", f"{BOXES}[0].click()")
    gone = "document.querySelector('section.drains')?.innerText.includes('no bundle is left')"
    stage.until(lambda: stage.open() and stage.chromium.run(gone))

    before = len(stage.airflow.runs(stage.dag("by_hand")))
    asked_for(stage.chromium, "Release…", f"{BOXES}.forEach((box) => box.click())")
    stage.chromium.run("document.querySelector('dialog button[type=submit]').click()")
    assert stage.ended("by_hand", before + 1) == "success"
    stage.chromium.until("document.querySelector('section.drains').innerText === ''")

    stage.plans("Unload…", f"{BUNDLES}.value = 'acme/orders/*'")
    told(stage.chromium, "each verified on its new broker")


@long
def test_two_hundred_brokers(stages: dict[str, Stage]) -> None:
    stage = stages["large"]
    stage.begin()
    assert stage.ended() == "success"
    stage.says("waiting")
    stage.draw("large")


@long
def test_the_list_says_of_each_cluster_what_its_page_says(stages: dict[str, Stage]) -> None:
    chromium = stages["east"].chromium
    words = {}
    for name, stage in stages.items():
        stage.open()
        words[name] = chromium.run("document.querySelector('h1 .word').textContent")
    show(chromium, f"{stages['east'].airflow.home.url}/pulsar_rebalancer/page")
    cards = "[...document.querySelectorAll('.clusters a')]"
    listed = chromium.run(f"{cards}.map((card) => ['b', '.word'].map((of) => card.querySelector(of).textContent))")
    assert dict(listed) == words
