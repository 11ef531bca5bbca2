"""Who gets what of the page: Airflow's own web server with its own users, every route of the application."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from starlette.routing import Mount
from tests.airflow_server import scheduler_is_alive
from tests.overview_scene import Scene, broker, history, uneven

from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import StateDocument
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.options import CLUSTERS_VARIABLE, STORAGE_VARIABLE
from pulsar_rebalancer_airflow.overview import airflow_facts
from pulsar_rebalancer_airflow.overview.routes import app
from pulsar_rebalancer_airflow.state_store import ALL_DOCUMENTS
from pulsar_rebalancer_airflow.suites import validation_page

pytestmark = pytest.mark.integration

HOSTILE = "<script>alert(1)</script>"
PAUSE = {"until": "2999-01-01T00:00:00Z", "reason": "a holiday"}


@pytest.fixture(scope="module")
def server() -> Iterator[TestClient]:
    purge_cached_app()
    with TestClient(create_app("core"), follow_redirects=False) as client:
        yield client
    purge_cached_app()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoragePath:
    """Three clusters, one of them with a broken entry; the folder of the latest run of `east`."""
    clusters = tmp_path / "clusters.yaml"
    clusters.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    "east": {"mode": "auto"},
                    "north": {"mode": "auto", "two_people": True, "pause": PAUSE},
                    "west": {"modes": HOSTILE},
                }
            }
        )
    )
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(clusters))
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "root"))
    scene = Scene(str(tmp_path / "root"), uneven(4))
    scene.namespace = f"acme/{HOSTILE}"
    history(scene, datetime.now(UTC), 1)
    found = scene.run(datetime.now(UTC))
    validation_page(found).write_bytes(b"<h1>east</h1>")
    replay = ClusterStorage(str(tmp_path / "root"), "east").replays / found.name
    (replay / "request.json").write_bytes((found / "input" / "settings.json").read_bytes())
    (replay / "report.html").write_bytes(b"<h1>replay</h1>")
    return found


@pytest.fixture
def known() -> None:
    scheduler_is_alive()
    with create_session() as session:
        session.merge(DagBundleModel(name="pages"))
        session.flush()
        for name in ("east", "north", "west"):
            for kind in ("rebalance", "control", "replay", "by_hand", "apply"):
                dag_id = f"pulsar_{kind}__{name}"
                session.merge(DagModel(dag_id=dag_id, bundle_name="pages", is_stale=False, is_paused=False, fileloc=""))


@pytest.fixture
def by_dag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is called after a cluster has rights on its DAGs alone, as other auth managers than Airflow's simple one
    give them."""
    whole = SimpleAuthManager.is_authorized_dag

    def is_authorized_dag(manager: Any, *, user: Any, details: Any = None, **more: Any) -> bool:
        named = details.id if details is not None else None
        own = named is None or named.endswith(f"__{user.username}")
        return own and whole(manager, user=user, details=details, **more)

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized_dag)


@contextmanager
def stored(*documents: StateDocument, damaged: str = "") -> Iterator[None]:
    given: dict[str, Any] = {model.KEY: model().model_dump(mode="json") for model in ALL_DOCUMENTS}
    given |= {document.KEY: document.model_dump(mode="json") for document in documents} | {damaged: {}}
    with mock.patch.object(airflow_facts, "_stored_value", lambda _session, _asset, key: given.get(key)):
        yield


def header(role: str, name: str = "ada") -> dict[str, str]:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=name, role=role))
    return {"Authorization": f"Bearer {token}"}


def addresses(folder: StoragePath, cluster: str = "east") -> list[str]:
    """Every route of the application, with values for what stands in braces."""
    run_id = json.loads((folder / "input" / "settings.json").read_bytes())["airflow_run_id"].replace("+", "%2B")
    values = {"run_id": run_id, "folder": folder.name, "name": "main.js"}
    paths: list[str] = [route.path for route in app.routes]  # type: ignore[attr-defined]
    return [f"/pulsar_rebalancer{path.format(**values, dag_id=_dag_of(path, cluster))}" for path in paths]


def _dag_of(path: str, cluster: str) -> str:
    return f"pulsar_{'replay' if '/replay/' in path else 'rebalance'}__{cluster}"


def test_every_route_wants_a_login_and_the_right_to_read(server: TestClient, folder: StoragePath, known: None) -> None:
    mounted = [each for each in server.app.routes if isinstance(each, Mount)]  # type: ignore[attr-defined]
    assert "/pulsar_rebalancer" in [each.path for each in mounted]
    assert len(addresses(folder)) == len(app.routes) > 0
    for address in addresses(folder):
        # Airflow has no such run: whoever may read is told so.
        found = 404 if address.endswith("/answer") else 200
        assert server.get(address).status_code == 401, address
        headers = server.get(address, headers=header("VIEWER")).headers
        assert headers["x-content-type-options"] == "nosniff", address
        assert headers["cache-control"].startswith("private, no-"), address
        assert server.get(address, headers={"Authorization": "Bearer made.up.token"}).status_code == 403, address
        assert server.get(address, headers=header("")).status_code == 403, address
        assert server.get(address, headers=header("VIEWER")).status_code == found, address
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert server.request(method, address, headers=header("ADMIN")).status_code == 405, address


def test_the_right_on_one_dag_is_none_on_another(
    server: TestClient, folder: StoragePath, known: None, by_dag: None
) -> None:
    of_dags = [path for path in addresses(folder) if "__east" in path]
    assert len(of_dags) >= 6
    for address in of_dags:
        assert server.get(address, headers=header("VIEWER", "east")).status_code in (200, 404), address
        assert server.get(address, headers=header("ADMIN", "north")).status_code == 403, address
        # The other DAG as a parameter changes nothing.
        asked = f"{address}?dag_id=pulsar_rebalance__north"
        assert server.get(asked, headers=header("ADMIN", "north")).status_code == 403, address

    for name in ("east", "north"):
        listed = server.get("/pulsar_rebalancer/clusters", headers=header("VIEWER", name)).json()
        assert [each["cluster"] for each in listed] == [name]
    assert server.get("/pulsar_rebalancer/clusters", headers=header("VIEWER", "nobody")).json() == []


def test_acting_wants_what_triggering_the_dag_wants(
    server: TestClient, folder: StoragePath, known: None, by_dag: None
) -> None:
    def acts(role: str, name: str = "east") -> Any:
        address = f"/pulsar_rebalancer/dags/pulsar_rebalance__{name}/overview"
        return server.get(address, headers=header(role, name)).json()["acts"]

    triggers = ("control", "rebalance", "by_hand")
    assert [acts("VIEWER")[kind] for kind in (*triggers, "question")] == ["", "", "", None]
    assert [acts("USER")[kind] for kind in triggers] == [f"pulsar_{kind}__east" for kind in triggers]

    # Where two people are needed, the page knows the user by id and login name.
    assert [acts("USER", name)["barred"] for name in ("east", "north")] == [[], ["north", "north"]]
    assert [acts("USER", name)["closed"] for name in ("east", "north")] == [
        "",
        "Rebalancing is paused until 2999-01-01 00:00 UTC (clusters file: a holiday).",
    ]

    # Nothing is moved until a person has reset or restored a lost state.
    with stored(damaged="drains"):
        lost = acts("USER")
    assert (lost["closed"], lost["stays_closed"]) == (Reason.STATE_LOST.meaning, Reason.STATE_LOST.meaning)

    paused = [f"pulsar_{kind}__east" for kind in ("apply", "by_hand", "control")]
    with create_session() as session:
        for dag_id in paused:
            session.merge(DagModel(dag_id=dag_id, is_paused=True))
    assert (acts("USER")["control"], acts("USER")["paused_dags"]) == ("pulsar_control__east", paused)
    assert (acts("USER")["rebalance"], acts("VIEWER")["paused_dags"]) == ("pulsar_rebalance__east", [])
    # Whoever may make plans is told that nothing carries them out, also without the right to that DAG.
    with create_session() as session:
        session.merge(DagModel(dag_id="pulsar_rebalance__east", is_paused=True))
    with mock.patch.object(airflow_facts, "may_use", lambda _, dag_id, *_more: "rebalance" not in dag_id):
        assert (acts("VIEWER")["rebalance"], acts("VIEWER")["carries_out"]) == ("", "pulsar_rebalance__east")
        assert acts("VIEWER")["paused_dags"] == [*paused, "pulsar_rebalance__east"]

    # Everyone is told why a rolling restart stands still.
    roll = Roll(id="0a1b", by="bob", order=("a:1",))
    with stored(roll), create_session() as session:
        rolls = DagModel(dag_id="pulsar_roll__east", bundle_name="pages", is_paused=True, is_stale=False, fileloc="")
        session.merge(rolls)
        session.commit()
        assert acts("VIEWER")["paused_dags"] == ["pulsar_roll__east"]

    # What the buttons call says so itself: nothing is started, answered or cancelled.
    runs = [f"/api/v2/dags/pulsar_{kind}__east/dagRuns" for kind in (*triggers, "apply")]
    asked = "/api/v2/dags/pulsar_apply__east/dagRuns/ask__1/taskInstances/approve/-1/hitlDetails"
    calls = [("POST", each) for each in runs] + [("PATCH", f"{each}/some_run") for each in runs] + [("PATCH", asked)]
    for method, address in calls:
        for role, name in (("VIEWER", "east"), ("ADMIN", "north")):
            body: dict[str, Any] = {"logical_date": None, "conf": {}, "chosen_options": ["Approve"]}
            answer = server.request(method, address, json=body, headers=header(role, name))
            assert answer.status_code == 403, (method, role, name)
        assert server.request(method, address, json={}).status_code == 401


SOON, LATER = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 2))


@pytest.mark.parametrize(
    ("kind", "form", "field", "said"),
    [
        ("by_hand", {"action": "release"}, "broker", "Choose at least one broker."),
        ("by_hand", {"action": "release", "broker": [broker(0)]}, "broker", "Drained brokers: a:1."),
        ("control", {"action": "pause", "until": SOON.isoformat()}, "until", "(bob: disks) first, because"),
        ("control", {"action": "freeze", "subject": "t/n", "until": "2026-01-02T03:04:05Z"}, "until", "in the past"),
        ("control", {"action": "skip_broker", "subject": "x:1"}, "subject", "not the turn of x:1"),
        ("roll", {"brokers": ["x:1"]}, "brokers", "These are not among the 4 active brokers: x:1."),
    ],
)
def test_a_wrong_form_gets_a_sentence_at_its_field_and_no_run_but_strangers_hear_nothing(
    server: TestClient, folder: StoragePath, known: None, by_dag: None, kind: str, form: Any, field: str, said: str
) -> None:
    def send(**headers: str) -> Any:
        asked = {"logical_date": None, "conf": form | {"reason": "x"}}
        return server.post(f"/api/v2/dags/pulsar_{kind}__east/dagRuns", json=asked, headers=headers)

    drained = Drains(brokers={"a:1": Drain(at=SOON, by="ada", reason="disks")})
    with stored(Control(orders=(GivenOrder(action="pause", at=SOON, by="bob", reason="disks", until=LATER),)), drained):
        answer = send(Cookie=header("ADMIN", "east")["Authorization"].replace("Bearer ", "_token="))
        assert (answer.status_code, list(answer.json()["fields"])) == (422, [field])
        assert said in answer.json()["fields"][field]
    with mock.patch.object(airflow_facts, "_stored_value") as read:
        for status, stranger in ((401, {}), (403, header("VIEWER", "east")), (403, header("ADMIN", "north"))):
            answer = send(**stranger)
            assert (answer.status_code, "fields" in answer.json(), read.called) == (status, False, False)


def test_a_cluster_that_cannot_be_read_hides_no_other(
    server: TestClient, folder: StoragePath, known: None, tmp_path: Path
) -> None:
    (tmp_path / "root" / "north").mkdir()
    (tmp_path / "root" / "north" / "runs").symlink_to("runs")
    drain = Drain(at=datetime.now(UTC), by="ada", reason="new disks")
    soon = datetime(2100, 1, 1, tzinfo=UTC)
    with create_session() as session:
        session.merge(DagModel(dag_id="pulsar_rebalance__north", next_dagrun_create_after=soon))
    listed = server.get("/pulsar_rebalancer/clusters", headers=header("VIEWER")).json()
    assert {each["cluster"]: each["state"] for each in listed} == {
        "east": "moved",
        "north": "unreadable",
        "west": "broken",
    }
    (north,) = [each for each in listed if each["cluster"] == "north"]
    said = north["sentence"]
    assert "storage_failed" in said
    assert north["next_run_at"] is not None
    with stored(Drains(brokers={"a:1": drain})):
        own = server.get("/pulsar_rebalancer/dags/pulsar_rebalance__north/overview", headers=header("USER")).json()
    assert (own["status"]["sentence"], own["acts"]["rebalance"]) == (said, "pulsar_rebalance__north")
    assert [(each["broker"], each["bundles"]) for each in own["drains"]] == [("a:1", None)]
    assert own["status"]["next_run_at"] == north["next_run_at"]


@pytest.mark.parametrize(
    "path", ["/docs", "/redoc", "/openapi.json", "/page/static/..%2Froutes.py", "/page/static/x.js"]
)
def test_there_is_nothing_else(server: TestClient, folder: StoragePath, path: str) -> None:
    assert server.get(f"/pulsar_rebalancer{path}", headers=header("ADMIN")).status_code == 404


def test_the_page_may_load_nothing_from_elsewhere_and_nothing_inline(server: TestClient, folder: StoragePath) -> None:
    for address in ("page", "page/pulsar_rebalance__east", "page/static/main.js", "page/static/page.css"):
        answer = server.get(f"/pulsar_rebalancer/{address}", headers=header("VIEWER"))
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'self'"} <= set(policy)
        assert "unsafe" not in answer.headers["content-security-policy"]


def test_the_documents_are_those_of_the_cluster(server: TestClient, folder: StoragePath, known: None) -> None:
    def ask(path: str) -> Any:
        return server.get(f"/pulsar_rebalancer{path}", headers=header("VIEWER"))

    east, north, west = ask("/clusters").json()
    assert (east["cluster"], east["state"], east["dag_id"]) == ("east", "moved", "pulsar_rebalance__east")
    assert (north["state"], west["cluster"], west["state"]) == ("no data", "west", "broken")

    found = ask("/dags/pulsar_rebalance__east/overview").json()
    assert found["folder"] == folder.name
    assert HOSTILE in found["plan"]["moves"][0]["planned"]["bundle"]
    assert found["links"]["run"].startswith("/dags/pulsar_rebalance__east/runs/scheduled__")
    assert ask(found["links"]["validation"].removeprefix("/pulsar_rebalancer")).text == "<h1>east</h1>"
    assert ask("/dags/pulsar_rebalance__west/overview").json()["status"]["state"] == "broken"
    assert ask("/dags/pulsar_rebalance__east/timeline").json()["points"]

    # The tab of a replay's run is its report; those of other runs are the page.
    run_id = json.loads((folder / "input" / "settings.json").read_bytes())["airflow_run_id"]
    params, tab = {"run_id": run_id}, "/pulsar_rebalancer/page/pulsar_replay__east"
    there = server.get(tab, params=params, headers=header("VIEWER")).headers["location"]
    assert ask(there.removeprefix("/pulsar_rebalancer")).text == "<h1>replay</h1>"
    for other in (tab.replace("replay_", "rebalance_"), f"{tab}th"):
        assert server.get(other, params=params, headers=header("VIEWER")).status_code == 200
    assert server.get(tab, params={"run_id": "unknown"}, headers=header("VIEWER")).status_code == 200

    for nothing in (
        "other",
        "pulsar_rebalance__",
        "pulsar_rebalance__south",
        "pulsar_rebalance__..",
        "pulsar_by_hand__west",
    ):
        assert ask(f"/dags/{nothing}/overview").status_code == 404
    assert ask("/dags/pulsar_rebalance__east/overview?run_id=unknown").status_code == 404
