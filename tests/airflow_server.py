"""Airflow's own API server with its UI and its login, in a thread of this process."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import uvicorn
from airflow.api_fastapi.app import create_app, purge_cached_app
from airflow.configuration import conf
from airflow.jobs.job import Job
from airflow.utils.session import create_session
from tests.airflow_home import HOME

USERS = {"ada": "admin", "bob": "user", "vera": "viewer"}
"""Role by user; the password is the name."""


def scheduler_is_alive() -> None:
    with create_session() as session:
        make: Any = Job
        job = make(job_type="SchedulerJob", state="running")
        job.latest_heartbeat = datetime.now(UTC) + timedelta(days=1)
        session.add(job)


@contextmanager
def airflow_server() -> Iterator[str]:
    passwords = HOME / "simple_auth_manager_passwords.json.generated"
    passwords.write_text(json.dumps({name: name for name in USERS}))
    users = ",".join(f"{name}:{role}" for name, role in USERS.items())
    with mock.patch.dict(os.environ, {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users}):
        purge_cached_app()
        config = uvicorn.Config(create_app("core"), host="127.0.0.1", port=0, log_level="warning", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the API server did not start"
                thread.join(0.05)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}{conf.get('api', 'base_url', fallback='') and ''}"
        finally:
            server.should_exit = True
            thread.join()
            purge_cached_app()
