from __future__ import annotations

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import pytest


@pytest.fixture(scope="session", autouse=True)
def _database() -> None:
    from airflow.utils import db

    db.initdb()
