"""What the page shows in a real browser, in front of Airflow's own server; test_page_scenes.py: what its buttons do."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.accessibility import assert_accessible, assert_reached_with_tab
from tests.airflow_server import airflow_server
from tests.browser import Browser, browser
from tests.integration.airflow_world import Outcome, World, world
from tests.integration.page_scene import HOSTILE, asked_for, prepare, press, show, told
from tests.overview_scene import Scene, broker, uneven
from tests.patience import PATIENCE

from pulsar_rebalancer.orders.order import Control
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason

pytestmark = pytest.mark.integration


FRAME = "document.querySelector('iframe').contentDocument"


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory, one_session: None) -> Iterator[World]:
    given: dict[str, Any] = {
        "mode": "approve",
        "state_max_gap": 1000,
        "max_plan_age_seconds": 3600,
        "overloaded_threshold": 100,
        "max_bundles_per_run": 2,
        # A busy machine may take minutes from its run to its page.
        "alert_after_intervals": 1000,
    }
    with world("paged", tmp_path_factory.mktemp("paged"), **given) as made:
        prepare(made)
        yield made


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


@pytest.fixture(autouse=True)
def _accessible(chromium: Browser) -> Iterator[None]:
    """Whatever a scene shows at its end is accessible to everyone."""
    yield
    assert_accessible(chromium)


@pytest.mark.parametrize(
    ("cluster", "word", "said"),
    [
        ("east", "waiting", "points (hit"),
        ("large", "moved", "each verified on its new broker"),
        ("three", "waiting", "broker-0 and broker-2 differ by"),
        ("single", "balanced", "Fewer than two brokers can be compared, so there is nothing to balance."),
        ("even", "balanced", "4 brokers are within"),
        ("stuck", "unbalanced", "Why "),
        ("quiet", "would move", "Nothing is moved, because the mode is observe."),
        ("held", "held back", "was not carried out"),
        ("going", "moving", "2 of 4 done, 1 not as planned"),
        ("threshold", "balanced", "points or more above the mean load"),
        ("transfer", "waiting", "Runs in a row that found the cluster unbalanced"),
        ("idle", "off", "in mode off. No broker is contacted."),
        ("old", "stale", "No new data for 3 h."),
        ("new", "no data", "No run yet."),
        ("bad", "broken", "modes"),
        ("none", "", "This DAG does not belong to a Pulsar cluster."),
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
    # Nothing is promised that does not come.
    assert cluster not in ("going", "idle", "old", "new", "bad") or "moves start in about" not in text


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
    assert chromium.run("document.activeElement.dataset.key") == "brokers summary"
    chromium.size(1200, 900)


@pytest.mark.parametrize("cluster", ["east", "large"])
def test_page_fits_a_phone_and_the_dark_theme(chromium: Browser, url: str, cluster: str) -> None:
    address = f"{url}/pulsar_rebalancer/page/pulsar_rebalance__{cluster}"
    grounds = {}
    for theme in ("light", "dark"):
        chromium.theme(theme)
        show(chromium, address)
        grounds[theme] = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert grounds["light"] != grounds["dark"]
    chromium.theme("light")
    chromium.size(390, 800)
    show(chromium, address)
    assert chromium.run("document.documentElement.scrollWidth") <= 390
    assert chromium.run("document.querySelectorAll('g.broker').length") >= 4
    chromium.size(1200, 900)


UNTICKED = """window.asked = window.fetch;
window.fetch = async (...given) => {
    const answer = await window.asked(...given);
    const news = given[0].endsWith('/overview') && (await answer.clone().json()).status.state !== 'balanced';
    const updates = document.getElementById('updates');
    if (news && updates.checked) updates.click();
    return answer;
};
0"""
"""Automatic updates are switched off while the page waits for what it does not know yet."""


def test_page_renews_itself_and_keeps_its_place(chromium: Browser, url: str, paged: World) -> None:
    show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__east")
    chromium.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
    chromium.run("window.scrollTo(0, 500)")
    chromium.run("document.querySelector('section.brokers summary').focus({preventScroll: true})")
    chromium.run("window.before = [document.querySelector('section.brokers svg'), window.scrollY]")
    assert "east: waiting." in chromium.run("document.getElementById('live').textContent")
    chromium.run("window.unhurried = setTimeout; window.setTimeout = (act, time) => unhurried(act, time / 20); 0")

    Scene(paged.storage.root, {broker(number): 30.0 + number for number in range(8)}, cluster="east").run(
        datetime.now(UTC)
    )

    chromium.until("document.querySelector('h1 .word').textContent === 'balanced'")
    assert chromium.run("document.querySelector('section.brokers svg') !== window.before[0]")
    assert chromium.run("window.scrollY === window.before[1]")
    assert chromium.run("document.querySelector('section.brokers details').open")
    assert chromium.run("document.activeElement.dataset.key") == "brokers summary"
    assert "east: balanced." in chromium.run("document.getElementById('live').textContent")

    # Unless people do not want that, even if an answer is under way; here three seconds are 150 milliseconds.
    chromium.run(UNTICKED)
    Scene(paged.storage.root, uneven(8), cluster="east").run(datetime.now(UTC))
    chromium.until("!document.getElementById('updates').checked")
    chromium.run("window.fetch = window.asked; new Promise((done) => unhurried(done, 1000))")
    assert chromium.run("document.querySelector('h1 .word').textContent") == "balanced"
    chromium.run("document.getElementById('updates').click()")
    chromium.until("document.querySelector('h1 .word').textContent !== 'balanced'")


def test_two_hundred_brokers_are_at_most_300_kb(chromium: Browser, url: str) -> None:
    show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__large")
    assert "174 more" in chromium.text()
    login = httpx.post(f"{url}/auth/token", json={"username": "vera", "password": "vera"}, timeout=PATIENCE)
    asked = {address for address in chromium.requests if "/pulsar_rebalancer/" in address}
    assert len(asked) > 10
    token = login.json()["access_token"]
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as client:
        sizes = {address: len(client.get(address).raise_for_status().content) for address in asked}
    assert sum(sizes.values()) < 300_000, sizes

    # Brokers to drain are found by a part of their names; those that are ticked stay.
    asked_for(chromium, "Drain…")
    boxes = "[...document.querySelectorAll('dialog [name=broker]')]"
    assert chromium.run(f"{boxes}.length") == 20
    find = "const field = document.querySelector('dialog fieldset [type=search]'); field.value = {}; "
    find += "field.dispatchEvent(new Event('input')); "
    assert chromium.run(f"{{{find.format(json.dumps('broker-19'))} {boxes}.length}}") == 11
    chromium.run(f"{boxes}[0].click()")
    names = chromium.run(f"{{{find.format(json.dumps('broker-7.'))} {boxes}.map((each) => each.value)}}")
    assert names == [broker(19), broker(7)]
    chromium.press("Escape", 27)


def test_the_tab_of_a_dag_leads_to_run_log_and_validation(chromium: Browser, url: str, blocked: Outcome) -> None:
    dag = f"{url}/dags/{blocked.run.dag_id}"
    chromium.problems.clear()
    chromium.open(f"{dag}/plugin/pulsar-balance-dag")
    assert chromium.until(f"{FRAME}.querySelector('h1 .word').textContent") == "blocked"
    assert "Fewer than two brokers can be compared." in chromium.text("iframe")

    # The UI's own mode is the page's.
    for theme in ("dark", "light"):
        chromium.run(f"document.documentElement.className = '{theme}'")
        chromium.until(f"{FRAME}.documentElement.dataset.theme === '{theme}'")

    chromium.until(f"{FRAME}.querySelector('a[data-key=validation]')")
    chromium.run(f"{FRAME}.querySelector('a[data-key=validation]').click()")
    # The page of the result may run nothing and is of no origin: nobody can look into it from here.
    chromium.until(f"!{FRAME}?.querySelector('#page')")

    for text, end in (
        ("its log", "/tasks/validate"),
        ("latest run", quote(blocked.run.run_id)),
        ("DAG", blocked.run.dag_id),
        ("people's requests", "/dag_runs"),
    ):
        chromium.open(f"{dag}/plugin/pulsar-balance-dag")
        link = f"[...{FRAME}.querySelectorAll('nav.links a')].find((each) => each.textContent === {json.dumps(text)})"
        chromium.until(link)
        # Whatever key is held: another tab is not allowed from here.
        chromium.run(
            f"{link}.dispatchEvent(new MouseEvent('click', {{bubbles: true, cancelable: true, ctrlKey: true}}))"
        )
        chromium.until(f"location.pathname.endsWith('{end}')")

    chromium.open(f"{dag}/runs/{blocked.run.run_id}/plugin/pulsar-validation")
    chromium.until("document.querySelector('iframe')")
    chromium.until("performance.getEntriesByType('resource').some((each) => each.name.endsWith('/validation'))")

    chromium.open(f"{dag}/runs/{blocked.run.run_id}/plugin/pulsar-balance-run")
    assert chromium.until(f"{FRAME}.querySelector('h1 .word').textContent") == "blocked"
    assert "The cluster as this run saw it." in chromium.text("iframe")
    assert [problem for problem in chromium.problems if "pulsar_rebalancer" in problem] == []


@pytest.mark.usefixtures("blocked")
def test_a_user_who_may_only_read_sees_no_buttons(chromium: Browser, url: str) -> None:
    address = f"{url}/pulsar_rebalancer/page/pulsar_rebalance__paged"
    show(chromium, address)
    chromium.until("document.querySelectorAll('section.acts button').length > 5")
    cookies = chromium.send("Network.getCookies")["cookies"]
    login = httpx.post(f"{url}/auth/token", json={"username": "vera", "password": "vera"}, timeout=PATIENCE)
    of_vera = [each | {"value": login.json()["access_token"]} for each in cookies if each["name"] == "_token"]
    chromium.send("Network.setCookies", cookies=of_vera)
    try:
        show(chromium, address)
        assert chromium.run("document.querySelectorAll('section.acts button').length") == 0
    finally:
        chromium.send("Network.setCookies", cookies=cookies)


@pytest.mark.usefixtures("blocked")
def test_a_request_is_not_followed_while_people_do_not_want_that(chromium: Browser, url: str, paged: World) -> None:
    show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__paged")
    # Two seconds are 100 milliseconds.
    chromium.run("window.unhurried = setTimeout; window.setTimeout = (act, time) => unhurried(act, time / 20); 0")
    press(chromium, "Stop…", "a test")
    told(chromium, "waiting for its turn")
    chromium.run("document.getElementById('updates').click()")
    # A request that is under way may still be answered.
    chromium.run("new Promise((done) => unhurried(done, 1000))")
    chromium.requests.clear()
    (waiting,) = paged.queued("control")
    assert paged.begin(waiting, "control").state == "success"
    chromium.run("new Promise((done) => unhurried(done, 1000))")
    assert [address for address in chromium.requests if address.endswith("/answer")] == []
    assert "waiting for its turn" in chromium.run("document.querySelector('.sent p').textContent")
    chromium.run("document.getElementById('updates').click()")
    told(chromium, "done")


@pytest.mark.usefixtures("blocked")
def test_all_is_done_with_the_keyboard(chromium: Browser, url: str) -> None:
    for address in ("page", "page/pulsar_rebalance__paged"):
        show(chromium, f"{url}/pulsar_rebalancer/{address}")
        chromium.run("document.querySelectorAll('details').forEach((each) => each.open = true)")
        assert_reached_with_tab(chromium)

    # Within a dialog the focus stays in it, and returns from it, even if its button has been drawn again.
    for name in ("Pause", "Drain"):
        key = f"act {name}…"
        button = f"document.querySelector('[data-key=\"{key}\"]')"
        chromium.run(f"{button}.focus()")
        chromium.press("Enter", 13)
        chromium.until("document.querySelector('dialog[open]')")
        chromium.run("document.querySelectorAll('dialog details').forEach((each) => each.open = true)")
        assert_reached_with_tab(chromium)
        assert_accessible(chromium)
        chromium.run(f"{button}.replaceWith({button}.cloneNode(true))")
        chromium.press("Escape", 27)
        chromium.until("!document.querySelector('dialog')")
        assert chromium.run("document.activeElement.dataset.key") == key


@pytest.mark.usefixtures("blocked")
def test_a_rolling_restart_has_its_progress_and_its_buttons(chromium: Browser, url: str, paged: World) -> None:
    show(chromium, f"{url}/pulsar_rebalancer/page/pulsar_rebalance__paged")
    paged.put(Roll(id="0a1b", by="ada", order=("a:1", "b:1"), done={"a:1": Reason.ROLLED}, waits="its turn"))
    chromium.until("document.querySelector('section.roll progress')?.position === 0.5")
    said = "Rolling restart by ada: b:1 waiting, 1 of 2 brokers done; waits for its turn."
    assert said in chromium.run("document.querySelector('section.roll').innerText")
    assert_accessible(chromium)

    # The list of clusters leads straight to the forms that help.
    call = {"phase": Phase.RESTARTING, "may_restart": True, "since": datetime.now(UTC)}
    paged.put(Roll(id="0a1b", by="ada", order=("a:1", "b:1"), done={"a:1": Reason.ROLLED}).model_copy(update=call))
    assert "Rolling restart, broker 2 of 2: restart b:1 now." in show(chromium, f"{url}/pulsar_rebalancer/page")
    assert_accessible(chromium)
    chromium.run("document.querySelector('.clusters a[href$=\"#act=Skip+broker\"]').click()")
    chromium.until("document.querySelector('dialog[open]')?.ariaLabel === 'Skip the current broker'")
    chromium.press("Escape", 27)
    chromium.until("!document.querySelector('dialog') && !location.hash")
    press(chromium, "Skip broker…", "a test")
    (run_id,) = paged.queued("control")
    assert paged.begin(run_id, "control").state == "success"
    assert paged.document(Control).last_order("skip_broker")
    paged.put(Roll())
    chromium.until("!document.querySelector('section.roll').innerText")
