"""What the page is shown of in a real browser: clusters in every state, and how its buttons are pressed."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from tests.accessibility import assert_accessible
from tests.airflow_server import scheduler_is_alive
from tests.browser import Browser
from tests.integration.airflow_world import Outcome, World
from tests.overview_scene import Scene, broker, history, uneven

from pulsar_rebalancer.reasons import Reason

HOSTILE = "<script>alert(1)</script>"
READY = "document.getElementById('page').getAttribute('aria-busy') === 'false'"


def prepare(made: World) -> None:
    """Further clusters whose runs are there already, and a scheduler that is alive."""
    now = datetime.now(UTC)
    clusters = Path(os.environ["AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE"])
    document = yaml.safe_load(clusters.read_text())
    names: tuple[str, ...] = ("east", "three", "large", "thousand", "single", "even", "stuck", "held", "going")
    names += ("threshold", "transfer", "quiet")
    # A busy machine may take minutes until it shows them.
    document["clusters"] |= {name: {"mode": "auto", "alert_after_intervals": 1000} for name in names}
    document["clusters"]["quiet"]["mode"] = "observe"
    document["clusters"] |= {"old": {"mode": "auto"}, "new": {}, "bad": {"modes": "auto"}, "idle": {"mode": "off"}}
    for name in ("threshold", "transfer"):
        document["clusters"][name]["strategy"] = f"{name.capitalize()}Shedder"
    document["clusters"]["east"]["interval_seconds"] = 12  # the page renews itself every three
    clusters.write_text(yaml.safe_dump(document))
    root = made.storage.root
    east = Scene(root, uneven(8), cluster="east")
    east.namespace = f"acme/{HOSTILE}"
    history(east, now - timedelta(minutes=18), 12)
    east.owned[next(iter(east.owned))][80] = 31.0  # a bundle that has grown too hot since
    history(east, now - timedelta(seconds=20), 5)
    soon = now - timedelta(seconds=20)
    history(Scene(root, uneven(200), cluster="large"), soon, 2)
    history(Scene(root, {broker(0): 90, broker(1): 5}, cluster="thousand", each=2500), soon, 2)
    history(Scene(root, uneven(3), cluster="three"), soon, 1)
    history(Scene(root, {broker(0): 40}, cluster="single"), soon, 1)
    history(Scene(root, {broker(number): 40.0 + number for number in range(4)}, cluster="even"), soon, 1)
    history(Scene(root, uneven(3), cluster="stuck", each=1), soon, 2)
    history(Scene(root, uneven(4), cluster="quiet", mode="observe"), soon, 2)
    uneasy = Scene(root, uneven(4, hottest=98, coldest=2), cluster="transfer", strategy="TransferShedder")
    history(uneasy, soon, 1)
    close = Scene(root, uneven(4, hottest=55, coldest=45), cluster="threshold", strategy="ThresholdShedder")
    history(close, soon, 1)
    held = Scene(root, uneven(4), cluster="held")
    held.run(soon - timedelta(minutes=1))
    held.run(soon, verdict=Reason.SETTINGS_CHANGED)
    going = Scene(root, uneven(4), cluster="going")
    going.run(soon - timedelta(minutes=1))
    going.run(soon, seconds=0, astray=1)
    history(Scene(root, uneven(3), cluster="old"), now - timedelta(hours=3), 1)
    scheduler_is_alive()


def show(chromium: Browser, address: str) -> str:
    chromium.problems.clear()
    chromium.requests.clear()
    chromium.open(address)
    chromium.until(READY)
    return chromium.text()


def press(chromium: Browser, button: str, reason: str = "") -> None:
    chromium.until(f"document.querySelector('[data-key=\"act {button}\"]')")
    chromium.run(f"document.querySelector('[data-key=\"act {button}\"]').click()")
    chromium.until("document.querySelector('dialog[open]')")
    if reason:
        chromium.until("document.activeElement.name === 'reason'")
        chromium.write(reason)
    send(chromium, lambda: chromium.press("Enter", 13), "!document.querySelector('dialog')")
    chromium.until(f"document.querySelector('.sent b').textContent === '{button.rstrip('…')}'")


def send(chromium: Browser, act: Callable[[], object], done: str) -> None:
    """Send the form of the open dialog until an expression is true, again if Airflow's database was busy."""
    failed = "document.querySelector('dialog .said').textContent.includes('returned 500')"
    for _ in range(20):
        act()
        if chromium.until(f"({done}) ? 'done' : {failed} && 'failed'") == "done":
            return
    raise AssertionError(f"Airflow's API server fails again and again; the page says: {chromium.text()[:1500]}")


def told(chromium: Browser, said: str) -> str:
    text = "document.querySelector('.sent p').textContent"
    return str(chromium.until(f"{text}.includes({json.dumps(said)}) && {text}"))


def changed_in_file(cluster: str, **given: object) -> None:
    clusters = Path(os.environ["AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE"])
    document = yaml.safe_load(clusters.read_text())
    entry = document["clusters"][cluster]
    document["clusters"][cluster] = {name: value for name, value in (entry | given).items() if value is not None}
    clusters.write_text(yaml.safe_dump(document))


def asked_for(chromium: Browser, button: str, fields: str = "", reason: str = "a test") -> None:
    """Open the dialog of a manual action, fill in its fields by a script, and its reason."""
    chromium.until(f"document.querySelector('[data-key=\"act {button}\"]:enabled')")
    chromium.run(f"document.querySelector('[data-key=\"act {button}\"]').click()")
    chromium.until("document.querySelector('dialog[open]')")
    chromium.run(f"{fields}; document.querySelector('dialog [name=reason]').value = {json.dumps(reason)}; undefined")


def planned(chromium: Browser, paged: World, times: int = 1) -> str:
    """Have the plan of the open dialog made; returns what the dialog says then."""
    go = "document.querySelector('dialog button[type=submit]')"
    chromium.run(f"{go}.focus()")
    for _ in range(times):
        chromium.run(f"{go}.click()")
    chromium.until("document.querySelector('dialog .said').textContent.includes('waiting for its turn')")
    (run_id,) = paged.queued("by_hand")
    assert paged.begin(run_id, "by_hand").state == "success"
    chromium.until("document.querySelector('dialog .said').textContent.includes('plan')")
    chromium.until("document.querySelector('dialog .carry')")
    assert_accessible(chromium)
    return str(chromium.run("document.querySelector('dialog').innerText"))


def carried_out(chromium: Browser, paged: World) -> Outcome:
    """Press *Carry out*; returns the run that accepts or refuses the plan."""
    chromium.run("document.querySelector('dialog .carry').click()")
    told(chromium, "waiting for its turn")
    (run_id,) = paged.queued("by_hand")
    return paged.begin(run_id, "by_hand")
