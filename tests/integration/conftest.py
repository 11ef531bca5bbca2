import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

from collections.abc import Iterator

import pytest
from tests.integration.airflow_world import decided_in_one_session


@pytest.fixture(scope="session", autouse=True)
def _database() -> None:
    from airflow.utils import db

    db.initdb()


@pytest.fixture(scope="module")
def one_session() -> Iterator[None]:
    with decided_in_one_session():
        yield
