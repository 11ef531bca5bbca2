"""Who gets what of the page: Airflow's own web server with its own users, every route of the application."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from starlette.routing import Mount
from tests.overview_scene import Scene, history, uneven

from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.locations import CLUSTERS_VARIABLE, STORAGE_VARIABLE
from pulsar_rebalancer_airflow.overview.app import app
from pulsar_rebalancer_airflow.validation.page import page_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pulsar_rebalancer.storage.path import StoragePath

pytestmark = pytest.mark.integration

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server() -> Iterator[TestClient]:
    purge_cached_app()
    with TestClient(create_app("core"), follow_redirects=False) as client:
        yield client
    purge_cached_app()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoragePath:
    """Two clusters; the folder of the newest run of `east`."""
    clusters = tmp_path / "clusters.yaml"
    clusters.write_text(yaml.safe_dump({"clusters": {"east": {"mode": "auto"}, "west": {"modes": HOSTILE}}}))
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(clusters))
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "root"))
    scene = Scene(str(tmp_path / "root"), uneven(4))
    scene.namespace = f"acme/{HOSTILE}"
    history(scene, datetime.now(UTC), 1)
    found = scene.run(datetime.now(UTC))
    page_of(found).write_bytes(b"<h1>east</h1>")
    replay = ClusterStorage(str(tmp_path / "root"), "east").replays / found.name
    (replay / "request.json").write_bytes((found / "input" / "settings.json").read_bytes())
    (replay / "report.html").write_bytes(b"<h1>replay</h1>")
    return found


@pytest.fixture
def known() -> None:
    """Airflow knows the DAGs of both clusters."""
    with create_session() as session:
        session.merge(DagBundleModel(name="pages"))
        session.flush()
        for name in ("east", "west"):
            for kind in ("rebalance", "replay"):
                dag_id = f"pulsar_{kind}__{name}"
                session.merge(DagModel(dag_id=dag_id, bundle_name="pages", is_stale=False, fileloc=""))


def header(role: str) -> dict[str, str]:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ada", role=role))
    return {"Authorization": f"Bearer {token}"}


def addresses(folder: StoragePath) -> list[str]:
    """Every route of the application, with values for what stands in braces."""
    run_id = json.loads((folder / "input" / "settings.json").read_bytes())["airflow_run_id"].replace("+", "%2B")
    values = {"run_id": run_id, "folder": folder.name, "name": "main.js"}
    paths: list[str] = [route.path for route in app.routes]  # type: ignore[attr-defined]
    return [f"/pulsar_rebalancer{path.format(**values, dag_id=_dag_of(path))}" for path in paths]


def _dag_of(path: str) -> str:
    return f"pulsar_{'replay' if '/replay/' in path else 'rebalance'}__east"


def test_every_route_wants_a_login_and_the_right_to_read(server: TestClient, folder: StoragePath, known: None) -> None:
    mounted = [each for each in server.app.routes if isinstance(each, Mount)]  # type: ignore[attr-defined]
    assert "/pulsar_rebalancer" in [each.path for each in mounted]
    assert len(addresses(folder)) == 8
    for address in addresses(folder):
        assert server.get(address).status_code == 401, address
        assert server.get(address, headers={"Authorization": "Bearer made.up.token"}).status_code == 403, address
        assert server.get(address, headers=header("")).status_code == 403, address
        assert server.get(address, headers=header("VIEWER")).status_code == 200, address
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert server.request(method, address, headers=header("ADMIN")).status_code == 405, address


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
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_documents_are_those_of_the_cluster(server: TestClient, folder: StoragePath, known: None) -> None:
    def ask(path: str) -> Any:
        return server.get(f"/pulsar_rebalancer{path}", headers=header("VIEWER"))

    east, west = ask("/clusters").json()
    assert (east["cluster"], east["state"], east["dag_id"]) == ("east", "moved", "pulsar_rebalance__east")
    assert (west["cluster"], west["state"]) == ("west", "broken")

    found = ask("/dags/pulsar_rebalance__east/overview").json()
    assert found["folder"] == folder.name
    assert HOSTILE in found["plan"]["moves"][0]["bundle"]
    assert found["links"]["run"].startswith("/dags/pulsar_rebalance__east/runs/scheduled__")
    assert ask(found["links"]["validation"].removeprefix("/pulsar_rebalancer")).text == "<h1>east</h1>"
    assert ask("/dags/pulsar_rebalance__west/overview").json()["status"]["state"] == "broken"
    assert ask("/dags/pulsar_rebalance__east/timeline").json()["buckets"]

    # The tab of a replay's run is its report; those of other runs are the page.
    run_id = json.loads((folder / "input" / "settings.json").read_bytes())["airflow_run_id"]
    params, tab = {"run_id": run_id}, "/pulsar_rebalancer/page/pulsar_replay__east"
    there = server.get(tab, params=params, headers=header("VIEWER")).headers["location"]
    assert ask(there.removeprefix("/pulsar_rebalancer")).text == "<h1>replay</h1>"
    for other in (tab.replace("replay_", "rebalance_"), f"{tab}th"):
        assert server.get(other, params=params, headers=header("VIEWER")).status_code == 200
    assert server.get(tab, params={"run_id": "unknown"}, headers=header("VIEWER")).status_code == 200

    for nothing in ("other", "pulsar_rebalance__", "pulsar_rebalance__north", "pulsar_rebalance__.."):
        assert ask(f"/dags/{nothing}/overview").status_code == 404
    assert ask("/dags/pulsar_rebalance__east/overview?run_id=unknown").status_code == 404
    assert ask("/dags/pulsar_rebalance__east/timeline?span=year").status_code == 422


def test_a_clusters_file_that_cannot_be_read_is_told_in_words(
    server: TestClient, folder: StoragePath, tmp_path: Path
) -> None:
    (tmp_path / "clusters.yaml").write_text("clusters: [")
    answer = server.get("/pulsar_rebalancer/dags/pulsar_rebalance__east/overview", headers=header("VIEWER"))
    assert answer.status_code == 503
    assert "clusters.yaml: cannot be read" in answer.json()["detail"]
