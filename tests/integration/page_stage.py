"""The stage of the scenes of the page: simulated clusters, one Airflow with a real scheduler, and a browser."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.accessibility import assert_accessible
from tests.browser import Browser, browser
from tests.integration.page_scene import asked_for, press, send, show, told
from tests.patience import PATIENCE

from pulsar_rebalancer_airflow.embedded.airflow_home import CHECKOUT, AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow, Processes
from pulsar_rebalancer_airflow.spark_archive import cached_archive
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import build_cluster
from pulsar_simulator.serve import serve
from pulsar_simulator.timeline import RealClock

PICTURES = CHECKOUT / "docs" / "pictures" if os.environ.get("DRAW_PICTURES") else None
"""Where the pictures of the documents go when they are to be drawn again."""

ANOTHER = "vera"
"""Another user who may do everything."""

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


@dataclass(frozen=True)
class Part:
    """A cluster that takes part: its name, its settings in the clusters file, and its size."""

    name: str
    settings: dict[str, Any] = field(hash=False)
    brokers: int = 4
    bundles: int = 60


class Home(AirflowHome):
    """An Airflow whose task *decide* can be held, and whose DAGs wait to be unpaused."""

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"admin:admin,{ANOTHER}:admin",
            # A task that is held occupies a place.
            "AIRFLOW__CORE__PARALLELISM": "8",
        }


@dataclass(frozen=True)
class Stage:
    """One cluster, its DAGs, and its page."""

    name: str
    cluster: Cluster
    airflow: LocalAirflow
    chromium: Browser

    def dag(self, kind: str = "rebalance") -> str:
        return f"pulsar_{kind}__{self.name}"

    @property
    def pipe(self) -> Path:
        """While this named pipe exists, *decide* waits for somebody who writes into it."""
        return self.airflow.home.dags_folder / f"{self.dag()}.pipe"

    def asks(self, method: str, path: str, body: object) -> None:
        """Ask Airflow's API for a change, with the session of the browser's user; again if its database is busy."""
        sent = {"method": method, "headers": {"Content-Type": "application/json"}, "body": json.dumps(body)}
        self.open()
        self.until(lambda: self.chromium.run(f"fetch('/api/v2{path}', {json.dumps(sent)}).then(({{ ok }}) => ok)"))

    def begin(self, *kinds: str) -> None:
        """Let the scheduler run DAGs of the cluster; all that the page starts, unless some are named."""
        for kind in kinds or ("by_hand", "control", "apply", "rebalance"):
            self.airflow.wait_for_dag(self.dag(kind))
            self.asks("PATCH", f"/dags/{self.dag(kind)}", {"is_paused": False})

    def ended(self, kind: str = "rebalance", number: int = 1) -> str:
        """Wait for the end of so many runs of a DAG; returns the state of the last."""
        runs = self.until(lambda: self.airflow.runs(self.dag(kind))[number - 1 :])
        return self.airflow.wait(self.dag(kind), runs[0]["dag_run_id"])["state"]

    def states(self, run_id: str) -> dict[str, str | None]:
        """States of the tasks of a run of `pulsar_rebalance__<cluster>`."""
        return {task["task_id"]: task["state"] for task in self.airflow.tasks(self.dag(), run_id)}

    def until(self, happened: Callable[[], Any]) -> Any:
        limit = time.monotonic() + PATIENCE
        while not (found := happened()):
            assert time.monotonic() < limit, f"it did not happen; the page says: {self.chromium.text()[:1500]}"
            time.sleep(1)
        return found

    def open(self) -> str:
        return show(self.chromium, f"{self.airflow.home.url}/pulsar_rebalancer/page/{self.dag()}")

    @contextmanager
    def another_user(self) -> Iterator[None]:
        known = json.loads(self.airflow.home.password_file.read_text())[ANOTHER]
        login = {"username": ANOTHER, "password": known}
        token = httpx.post(f"{self.airflow.home.url}/auth/token", json=login, timeout=PATIENCE).json()["access_token"]
        cookies = self.chromium.send("Network.getCookies")["cookies"]
        own = [each for each in cookies if each["name"] == "_token"]
        self.chromium.send("Network.setCookies", cookies=[each | {"value": token} for each in own])
        try:
            yield
        finally:
            self.chromium.send("Network.setCookies", cookies=own)

    def word(self) -> str:
        self.open()
        return str(self.chromium.run("document.querySelector('h1 .word')?.textContent"))

    def says(self, word: str, *sentences: str) -> None:
        """Open the page until it says the word and the sentences; everyone can use it, and nothing went wrong."""

        def said() -> bool:
            told = self.word() == word and all(sentence in self.chromium.text() for sentence in sentences)
            # Airflow's database may be busy.
            return told and not any("status of 500" in each for each in self.chromium.problems)

        self.until(said)
        # What cannot be read is answered with 503.
        assert [each for each in self.chromium.problems if word != "unreadable" or "503" not in each] == []
        assert_accessible(self.chromium)

    def opens(self, *buttons: str) -> str:
        """Open the dialog of each button: everyone can use it, and Escape closes it; returns what the last one says."""
        said = ""
        for button in buttons:
            asked_for(self.chromium, button)
            said = str(self.chromium.run("document.querySelector('dialog').innerText"))
            assert_accessible(self.chromium)
            self.chromium.press("Escape", 27)
            self.chromium.until("!document.querySelector('dialog')")
        return said

    def presses(self, button: str, reason: str, kind: str = "control") -> str:
        """Press a button; returns the state of the run that it starts, once that has ended."""
        before = len(self.airflow.runs(self.dag(kind)))
        press(self.chromium, button, reason)
        return self.ended(kind, before + 1)

    def clicks(self, button: str, done: str) -> None:
        found = f"document.querySelector('dialog {button}:enabled')"
        send(self.chromium, lambda: self.chromium.until(f"{found} && ({found}.click(), true)"), done)

    def plans(self, button: str, fields: str = "") -> str:
        """Fill in a manual action, and have its plan made; returns what its dialog says then."""
        asked_for(self.chromium, button, fields)
        return self.plans_again()

    def plans_again(self) -> str:
        self.chromium.run("document.querySelector('dialog .carry')?.remove()")
        self.clicks("button[type=submit]", "document.querySelector('dialog .carry')")
        assert_accessible(self.chromium)
        return str(self.chromium.run("document.querySelector('dialog').innerText"))

    def carries_out(self) -> str:
        """Press *Carry out*; returns the state of the run that accepts or refuses the plan."""
        before = len(self.airflow.runs(self.dag("by_hand")))
        self.clicks(".carry", "!document.querySelector('dialog')")
        return self.ended("by_hand", before + 1)

    def releases(self) -> None:
        """Release all brokers that are offered, and wait until that has happened."""
        before = len(self.airflow.runs(self.dag("by_hand")))
        boxes = "document.querySelectorAll('dialog [name=broker]').forEach((box) => box.checked = true)"
        asked_for(self.chromium, "Release…", boxes)
        self.clicks("button[type=submit]", "!document.querySelector('dialog')")
        assert self.ended("by_hand", before + 1) == "success"
        told(self.chromium, "done Released.")

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


@contextmanager
def stages(folder: Path, parts: Collection[Part]) -> Iterator[dict[str, Stage]]:
    """Start the clusters, one Airflow, and a browser whose user has logged in."""
    timing = Timing(stats_period=1, host_check_period=1, report_max_interval=5)
    clusters: dict[str, Cluster] = {}
    connections: dict[str, Any] = {"spark_default": {"conn_type": "spark", "host": "local[2]"}}
    with ExitStack() as stack:
        for part in parts:
            size = {"brokers": part.brokers, "bundles": part.bundles}
            clusters[part.name] = build_cluster(**size, noise=NO_NOISE, timing=timing, clock=RealClock())
            served = stack.enter_context(serve(clusters[part.name]))
            host = ",".join(url.removeprefix("http://") for url in served.urls)
            connections[part.name] = {"conn_type": "pulsar_admin", "host": host, "password": served.token}
        home = Home(
            folder=folder / "airflow",
            cluster_settings={part.name: part.settings | {"connection": part.name} for part in parts},
            connections=connections,
            spark_archive=cached_archive(CHECKOUT / ".cache"),
            dags_folder=folder / "dags",
        )
        home.dags_folder.mkdir()
        (home.dags_folder / "dags.py").write_text(DAGS)
        home.prepare(keep_data=False)
        airflow = LocalAirflow(home, stack.enter_context(Processes()))
        airflow.start()
        chromium = stack.enter_context(browser())
        chromium.size(1200, 900)
        log_in(chromium, airflow)
        yield {name: Stage(name, cluster, airflow, chromium) for name, cluster in clusters.items()}


def log_in(chromium: Browser, airflow: LocalAirflow) -> None:
    chromium.open(f"{airflow.home.url}/auth/login")
    for name, value in (("username", "admin"), ("password", airflow.password)):
        chromium.until(f"document.querySelector('input[name={name}]')")
        chromium.run(f"document.querySelector('input[name={name}]').focus()")
        chromium.write(value)
    chromium.press("Enter", 13)
    chromium.until("!location.pathname.startsWith('/auth')")
