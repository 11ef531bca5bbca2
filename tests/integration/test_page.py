"""The page in a real browser, in front of Airflow's own server: its states, its place in the UI, and what it does."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest
import yaml
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from tests.airflow_server import airflow_server
from tests.browser import browser
from tests.integration.airflow_world import world
from tests.overview_scene import Scene, history, uneven

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser import Browser
    from tests.integration.airflow_world import Outcome, World

pytestmark = pytest.mark.integration

HOSTILE = "<script>alert(1)</script>"
PICTURES = Path(__file__).parents[2] / "docs" / "pictures" if os.environ.get("DRAW_PICTURES") else None
"""Where the pictures of the documents go when they are to be drawn anew."""

READY = "document.getElementById('page').getAttribute('aria-busy') === 'false'"
FRAME = "document.querySelector('iframe').contentDocument"


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world("paged", tmp_path_factory.mktemp("paged"), mode="auto") as made:
        prepare(made)
        yield made


def prepare(made: World) -> None:
    """Further clusters whose runs are there already."""
    now = datetime.now(UTC)
    clusters = Path(os.environ["PULSAR_REBALANCER_CLUSTERS"])
    document = yaml.safe_load(clusters.read_text())
    document["clusters"] |= {name: {"mode": "auto"} for name in ("east", "large", "one", "old")}
    document["clusters"] |= {"new": {}, "bad": {"modes": "auto"}}
    clusters.write_text(yaml.safe_dump(document))
    root = made.storage.root
    east = Scene(root, uneven(8), cluster="east")
    east.namespace = f"acme/{HOSTILE}"
    history(east, now - timedelta(minutes=18), 12)
    east.owned[next(iter(east.owned))][80] = 31.0  # a bundle that has grown too hot since
    history(east, now - timedelta(seconds=20), 5)
    large = Scene(root, uneven(200), cluster="large")
    history(large, now - timedelta(seconds=20), 2)
    history(Scene(root, uneven(3) | {"broker-1.pulsar.example:8080": 40}, cluster="one"), now, 1)
    history(Scene(root, uneven(3), cluster="old"), now - timedelta(hours=3), 1)


@pytest.fixture(scope="module")
def blocked(paged: World) -> Outcome:
    paged.served.cluster.faults.add("not_listed")
    return paged.run()


@pytest.fixture(scope="module")
def url(paged: World) -> Iterator[str]:
    with airflow_server() as address:
        yield address


@pytest.fixture(scope="module")
def chromium(url: str) -> Iterator[Browser]:
    """A browser whose user has logged in, by the form."""
    with browser() as found:
        found.size(1200, 900)
        found.open(f"{url}/auth/login")
        for field in ("username", "password"):
            found.until(f"document.querySelector('input[name={field}]')")
            found.run(f"document.querySelector('input[name={field}]').focus()")
            found.write("ada")
        found.press("Enter", 13)
        found.until("!location.pathname.startsWith('/auth')")
        yield found


def show(chromium: Browser, address: str) -> str:
    """Open an address of the page alone; returns what is to be read."""
    chromium.problems.clear()
    chromium.requests.clear()
    chromium.open(address)
    chromium.until(READY)
    return chromium.text()


def draw(chromium: Browser, name: str) -> None:
    if PICTURES is not None:
        chromium.picture(PICTURES / f"{name}.png", whole=False)
        assert (PICTURES / f"{name}.png").stat().st_size < 150_000


@pytest.mark.parametrize(
    ("cluster", "word", "said"),
    [
        ("east", "waiting", "apart, hit"),
        ("large", "moved", "each verified on its new broker"),
        ("one", "waiting", "broker-0 and broker-2 are"),
        ("old", "stale", "No run has looked at the cluster for 3 hours."),
        ("new", "no data", "No run has looked at the cluster yet."),
        ("bad", "broken", "modes"),
        ("none", "", "This DAG looks after no Pulsar cluster."),
    ],
)
def test_every_state_is_told(chromium: Browser, url: str, cluster: str, word: str, said: str) -> None:
    text = show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__{cluster}")

    if word:
        assert chromium.run("document.querySelector('h1 .word').textContent") == word
    assert said in text
    problems = [problem for problem in chromium.problems if cluster != "none" or "404" not in problem]
    assert problems == []
    assert {address for address in chromium.requests if not address.startswith(f"{url}/")} == set()


def test_names_are_texts_and_the_place_is_kept(chromium: Browser, url: str) -> None:
    show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__east")
    chromium.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert HOSTILE in chromium.text()
    assert chromium.run("document.querySelectorAll('main script').length") == 0

    # With the keyboard: the table of all brokers closes, and opens again.
    chromium.run("document.querySelector('section.brokers summary').focus()")
    chromium.press("Enter", 13)
    chromium.until("!document.querySelector('section.brokers details').open")
    chromium.press("Enter", 13)
    chromium.until("document.querySelector('section.brokers details').open")

    # Drawn anew for another width: what was open and had the focus still has.
    chromium.run("window.before = document.querySelector('section.brokers svg')")
    chromium.size(900, 900)
    chromium.until("document.querySelector('section.brokers svg') !== window.before")
    assert chromium.run("document.querySelector('section.brokers details').open")
    assert chromium.run("document.activeElement.dataset.key") == "brokers table"
    chromium.size(1200, 900)


@pytest.mark.parametrize("cluster", ["east", "large"])
def test_it_fits_on_a_phone_and_into_the_dark(chromium: Browser, url: str, cluster: str) -> None:
    address, name = f"{url}/pulsar_rebalancer/page/pulsar_rebalance__{cluster}", f"page-{cluster}"
    grounds = {}
    for theme in ("light", "dark"):
        chromium.theme(theme)
        show(chromium, address)
        draw(chromium, f"{name}-{theme}")
        grounds[theme] = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert grounds["light"] != grounds["dark"]
    chromium.theme("light")
    chromium.size(390, 800)
    show(chromium, address)
    assert chromium.run("document.documentElement.scrollWidth") <= 390
    assert chromium.run("document.querySelectorAll('g.broker').length") >= 4
    chromium.size(1200, 900)


def test_two_hundred_brokers_are_at_most_300_kb(chromium: Browser, url: str) -> None:
    show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__large")
    assert "174 more" in chromium.text()
    token = httpx.post(f"{url}/auth/token", json={"username": "vera", "password": "vera"}).json()["access_token"]
    asked = {address for address in chromium.requests if "/pulsar_rebalancer/" in address}
    assert len(asked) > 10
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        sizes = {address: len(client.get(address).raise_for_status().content) for address in asked}
    assert sum(sizes.values()) < 300_000, sizes


def test_the_link_of_a_failed_task_opens_the_result(url: str, blocked: Outcome) -> None:
    def ask(path: str, role: str | None = "VIEWER") -> httpx.Response:
        user = SimpleAuthManagerUser(username="ada", role=role)
        headers = {} if role is None else {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user)}"}
        return httpx.get(f"{url}{path}", headers=headers, timeout=60)

    assert blocked.states["validate"] == "failed"
    task = f"/api/v2/dags/{blocked.run.dag_id}/dagRuns/{quote(blocked.run.run_id)}/taskInstances/validate/links"
    link = ask(task).json()["extra_links"]["Validation result"]

    page = ask(link)

    assert page.status_code == 200
    assert "Fewer than two brokers can be judged." in page.text
    assert blocked.folder.uri in page.text
    assert "sandbox" in page.headers["content-security-policy"]
    assert ask(link, role=None).status_code == 401
    assert ask(link, role="").status_code == 403
    assert ask(link.replace(blocked.run.dag_id, "pulsar_rebalance__other")).status_code == 404


@pytest.mark.usefixtures("blocked")
def test_all_clusters_stand_in_the_navigation(chromium: Browser, url: str) -> None:
    chromium.open(f"{url}/")
    chromium.until("document.querySelector('a[href$=\"plugin/pulsar-balance\"]')")
    chromium.run("document.querySelector('a[href$=\"plugin/pulsar-balance\"]').click()")
    chromium.until(f"{FRAME}.querySelectorAll('.clusters li').length > 0")
    assert "blocked" in chromium.text("iframe")

    chromium.run(f"{FRAME}.querySelector('.clusters a[data-key$=paged]').click()")
    assert chromium.until(f"{FRAME}.querySelector('h1 .word').textContent") == "blocked"


def test_the_tab_of_a_dag_leads_to_run_log_and_validation(chromium: Browser, url: str, blocked: Outcome) -> None:
    dag = f"{url}/dags/{blocked.run.dag_id}"
    chromium.problems.clear()
    chromium.open(f"{dag}/plugin/pulsar-balance-dag")
    assert chromium.until(f"{FRAME}.querySelector('h1 .word').textContent") == "blocked"
    assert "Fewer than two brokers can be judged." in chromium.text("iframe")

    # The UI's own mode is the page's.
    for theme in ("dark", "light"):
        chromium.run(f"document.documentElement.className = '{theme}'")
        chromium.until(f"{FRAME}.documentElement.dataset.theme === '{theme}'")

    chromium.until(f"{FRAME}.querySelector('a[data-key=validation]')")
    chromium.run(f"{FRAME}.querySelector('a[data-key=validation]').click()")
    # The page of the result may run nothing and is of no origin: nobody can look into it from here.
    chromium.until(f"!{FRAME}?.querySelector('#page')")

    chromium.open(f"{dag}/plugin/pulsar-balance-dag")
    chromium.until(f"{FRAME}.querySelector('section.links a[href*=\"/tasks/validate\"]')")
    chromium.run(f"{FRAME}.querySelector('section.links a[href*=\"/tasks/validate\"]').click()")
    chromium.until("location.pathname.endsWith('/tasks/validate')")

    chromium.open(f"{dag}/runs/{blocked.run.run_id}/plugin/pulsar-balance-run")
    assert chromium.until(f"{FRAME}.querySelector('h1 .word').textContent") == "blocked"
    assert "This is how one run saw the cluster." in chromium.text("iframe")
    assert [problem for problem in chromium.problems if "pulsar_rebalancer" in problem] == []


@pytest.mark.usefixtures("blocked")
def test_a_pause_is_ordered_and_lifted_with_a_button(chromium: Browser, url: str, paged: World) -> None:
    show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__paged")

    def act(button: str, reason: str) -> None:
        chromium.until(f"document.querySelector('[data-key=\"act {button}\"]')")
        chromium.run(f"document.querySelector('[data-key=\"act {button}\"]').click()")
        chromium.until("document.activeElement.name === 'reason'")
        chromium.write(reason)
        chromium.press("Enter", 13)
        chromium.until("document.querySelector('.said a')")
        chromium.press("Escape", 27)
        chromium.until("!document.querySelector('dialog')")
        (run_id,) = paged.queued("control")
        assert paged.begin(run_id, "control").state == "success"

    act("Pause…", f"a party {HOSTILE}")
    chromium.until("document.querySelector('.force')")
    assert f"paused until {datetime.now(UTC):%Y-}" in chromium.text()
    assert f"by ada: a party {HOSTILE}" in chromium.text()

    act("Resume…", "it is over")
    chromium.until("!document.querySelector('.force')")
    assert chromium.problems == []
