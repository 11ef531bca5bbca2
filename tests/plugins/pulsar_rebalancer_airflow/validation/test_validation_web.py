from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.plugins.pulsar_rebalancer_airflow.validation.validation_sample import NOW

from pulsar_rebalancer.config.clusters_file import RunSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.retention import NeededData, maintain_storage
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.options import STORAGE_VARIABLE
from pulsar_rebalancer_airflow.overview import run_answers
from pulsar_rebalancer_airflow.overview.run_answers import stored_report
from pulsar_rebalancer_airflow.plugin import PulsarRebalancerPlugin
from pulsar_rebalancer_airflow.suites import page_path, report_path, validation_page

NOTHING = NeededData(frozenset(), frozenset())
DAG, RUN = "pulsar_rebalance__east", "manual__2026-11-21T12:00:00+00:00"


def stored_run(root: Path, cluster: str = "east") -> StoragePath:
    run = ClusterStorage(str(root), cluster).new_run_folder(NOW)
    resolved = RunSettings(settings=Settings(), origins={})
    RunRequest(cluster=cluster, airflow_run_id=RUN, resolved=resolved, collected_at=NOW).write(run)
    validation_page(run).write_bytes(f"<h1>{cluster}</h1>".encode())
    return run


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "root"))
    return tmp_path / "root"


class Manager:
    """An auth manager with one user, ada, who may read the logs of one DAG."""

    async def get_user_from_token(self, token: str) -> Any:
        from jwt import InvalidTokenError

        if token != "ada":
            raise InvalidTokenError
        return SimpleNamespace(name="ada")

    def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any, user: Any) -> bool:
        return (method, access_entity.value, user.name) == ("GET", "TASK_LOGS", "ada") and details.id in (DAG, None)


@pytest.fixture
def server(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The web server as Airflow builds it: the plugin's application under its prefix."""
    monkeypatch.setattr("airflow.api_fastapi.core_api.security.get_auth_manager", Manager)
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id: None)
    (registered,) = PulsarRebalancerPlugin.fastapi_apps
    app = FastAPI()
    app.mount(registered["url_prefix"], registered["app"])
    with TestClient(app) as client:
        yield client


def asked(server: TestClient, folder: str, dag: str = DAG, run: str = RUN, user: str = "ada") -> Any:
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    return server.get(page_path(dag, run, folder), headers=headers)


def test_the_page_of_a_run_is_served_without_any_right_to_act(server, root):
    answer = asked(server, stored_run(root).name)

    assert (answer.status_code, answer.text) == (200, "<h1>east</h1>")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "sandbox", "frame-ancestors 'self'"} <= set(policy)
    assert not any(part.startswith("script-src") for part in policy)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "private, no-store"


@pytest.mark.parametrize(("user", "status"), [("", 401), ("eve", 403)])
def test_nobody_else_gets_it(server, root, user, status):
    assert asked(server, stored_run(root).name, user=user).status_code == status


def test_nobody_gets_the_page_of_a_dag_that_is_not_theirs(server, root):
    west = stored_run(root, "west")

    assert asked(server, west.name, dag="pulsar_rebalance__west").status_code == 403
    assert asked(server, west.name).status_code == 404


def test_a_link_out_of_the_root_is_not_followed(root, tmp_path):
    run, elsewhere = stored_run(root), tmp_path / "secret.html"
    elsewhere.write_text("secret")
    page = tmp_path / validation_page(run).uri
    page.unlink()
    page.symlink_to(elsewhere)

    assert run_answers.stored_validation_page(str(root), DAG, RUN, run.name) is None


def later(root: Path, days: int) -> None:
    """Daily upkeep, so many days after the run."""
    maintain_storage(ClusterStorage(str(root), "east"), Settings(), NOTHING, NOW + timedelta(days=days), dry_run=False)


def test_the_page_of_a_run_whose_folder_was_compacted_is_there_as_long_as_the_history(server, root):
    run = stored_run(root)

    later(root, days=2)
    assert not run.exists()
    answer = asked(server, run.name)
    assert (answer.status_code, answer.text) == (200, "<h1>east</h1>")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert asked(server, run.name, run="manual__2026-11-22T12:00:00+00:00").status_code == 404
    assert asked(server, f"{run.name[:-8]}00000000").status_code == 404

    later(root, days=Settings().history_days + 1)
    answer = asked(server, run.name)
    assert answer.status_code == 404
    assert "history_days" in answer.json()["detail"]


def test_the_report_of_a_replay_is_for_those_who_may_read_its_dag(server, root):
    dag = "pulsar_replay__east"
    reports = {}
    for cluster in ("east", "west"):
        folder = ClusterStorage(str(root), cluster).new_replay_folder(NOW)
        (folder / "request.json").write_json({"cluster": cluster, "airflow_run_id": RUN})
        (folder / "report.html").write_bytes(f"<h1>{cluster}</h1>".encode())
        reports[cluster] = folder.name

    def answer(dag: str, run: str, name: str, user: str = "ada") -> Any:
        return server.get(report_path(dag, run, name), headers={"Authorization": f"Bearer {user}"} if user else {})

    assert stored_report(str(root), dag, RUN, reports["east"]) == b"<h1>east</h1>"
    for run, name in ((RUN, reports["west"]), ("manual__other", reports["east"]), (RUN, "..")):
        assert stored_report(str(root), dag, run, name) is None
    assert stored_report(str(root), DAG, RUN, reports["east"]) is None
    # Ada may read another DAG of the cluster.
    assert [answer(dag, RUN, reports["east"], user).status_code for user in ("", "eve", "ada")] == [401, 403, 403]
    assert answer(DAG, RUN, reports["east"]).status_code == 404
