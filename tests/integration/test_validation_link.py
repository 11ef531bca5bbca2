"""From a task that failed to the page that says why: a real run, Airflow's own web server and its own users."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.sdk import timezone
from fastapi.testclient import TestClient
from tests.include.pulsar_rebalancer.replay.recorded import FOUR, Run
from tests.integration.airflow_world import world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.airflow_world import Outcome, World

pytestmark = pytest.mark.integration

HOT = Run({"a:8080": 80, "b:8080": 20}, {"a:8080": dict.fromkeys(FOUR[1:], 9000), "b:8080": {FOUR[0]: 9000}})


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world("linked", tmp_path_factory.mktemp("linked")) as made:
        yield made


@pytest.fixture(scope="module")
def blocked(linked: World) -> Outcome:
    linked.served.cluster.faults.add("not_listed")
    return linked.run()


@pytest.fixture(scope="module")
def server() -> Iterator[TestClient]:
    purge_cached_app()
    with TestClient(create_app("core"), follow_redirects=False) as client:
        yield client
    purge_cached_app()


def header(role: str) -> dict[str, str]:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ada", role=role))
    return {"Authorization": f"Bearer {token}"}


def test_the_link_of_a_failed_task_opens_the_page(blocked: Outcome, server: TestClient, tmp_path: Path) -> None:
    assert blocked.states["validate"] == "failed"
    task = f"/api/v2/dags/{blocked.run.dag_id}/dagRuns/{blocked.run.run_id}/taskInstances/validate/links"
    links = server.get(task, headers=header("VIEWER")).json()["extra_links"]

    page = server.get(links["Validation result"], headers=header("VIEWER"))

    assert page.status_code == 200
    assert "Fewer than two brokers can be judged." in page.text
    assert blocked.folder.uri in page.text
    assert "sandbox" in page.headers["content-security-policy"]

    assert server.get(links["Validation result"]).status_code == 401
    assert server.get(links["Validation result"], headers={"Authorization": "Bearer made.up.token"}).status_code == 403
    assert server.get(links["Validation result"], headers=header("")).status_code == 403
    elsewhere = links["Validation result"].replace(blocked.run.dag_id, "pulsar_rebalance__other")
    assert server.get(elsewhere, headers=header("VIEWER")).status_code == 404


def test_a_replay_ends_with_a_report_that_its_link_opens(linked: World, server: TestClient) -> None:
    now = timezone.utcnow()
    for minutes in range(12, 0, -1):
        HOT.write(linked.storage, now - timedelta(minutes=minutes))

    done = linked.run("replay", grid=[{"strategy": "AvgShedder", "hit_count_high": [1, 9]}], worth=0.5)

    assert done.states == {"replay": "success"}
    answer = done.xcom("replay")
    assert answer["variants"] == 3
    assert answer["coverage"]["samples"] >= 12
    task = f"/api/v2/dags/{done.run.dag_id}/dagRuns/{done.run.run_id}/taskInstances/replay/links"
    link = server.get(task, headers=header("VIEWER")).json()["extra_links"]["Replay report"]
    page = server.get(link, headers=header("VIEWER"))
    assert page.status_code == 200
    assert "AvgShedder, hit_count_high 9" in page.text
    assert "sandbox" in page.headers["content-security-policy"]
    assert server.get(link).status_code == 401

    # Nothing is started for what cannot be compared.
    refused = linked.run("replay", grid=[{"strategy": "AvgSheder"}])
    assert refused.states == {"replay": "failed"}
    assert refused.xcom("replay", "failure") == "wrong_setting"
