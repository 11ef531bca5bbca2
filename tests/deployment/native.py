"""The services of docker-compose.yaml as processes of this machine: same commands, environment, order and checks.

What only a container has is replaced: the services' names by loopback, their ports by free ones, /opt/airflow by a
folder, /tmp by one below it.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deployment.compose import SOURCE, mounts
from tests.deployment.postgres import Postgres
from tests.patience import PATIENCE
from tests.pulsar.processes import free_ports

from pulsar_rebalancer_airflow.embedded.local_airflow import Processes, last_lines

_HOME = "/opt/airflow"
# Outside of a container nobody else shall reach them.
_LOOPBACK = {
    "AIRFLOW__API__HOST": "127.0.0.1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_HOST": "127.0.0.1",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
_NOT_INHERITED = ("AIRFLOW", "SPARK_", "PULSAR_", "PG")


class Native:
    """A deployment below a folder.

    Args:
        services: of the compose file, its variables filled in.
        ports: the port that stands for a service's port; the others are chosen.
        folder: stands for /opt/airflow, the image's part of it included.
        processes: what runs, and ends with the test.
        environment: what else the image sets.
    """

    def __init__(
        self,
        services: Mapping[str, dict[str, Any]],
        ports: Mapping[tuple[str, str], int],
        folder: Path,
        processes: Processes,
        environment: Mapping[str, str],
    ) -> None:
        self._services = services
        self._of_image = environment
        self._folder = folder
        self._processes = processes
        own = [(name, port) for name in services for port in self._own_ports(name)]
        free = [port for port in free_ports(len(own) + len(ports)) if port not in ports.values()]
        self._ports = dict(zip(own, free, strict=False)) | dict(ports)
        self._done: set[str] = set()
        self.postgres = Postgres(services["postgres"]["environment"], self.port("postgres", "5432"))
        self._lay_out()

    def port(self, service: str, port: str) -> int:
        return self._ports[service, port]

    def up(self, name: str) -> None:
        """Start a service after all that it depends on, and wait until its health check says so."""
        if name in self._done:
            return
        service = self._services[name]
        for needed in service.get("depends_on", {}):
            self.up(needed)
        if name == "postgres":
            self.postgres.start(self._processes, self._log(name))
        elif "healthcheck" in service:
            self._processes.start(name, self._command(name), self._environment(name), self._log(name))
        else:
            self._run(name)
        if "healthcheck" in service:
            self._wait(name)
        if name == "postgres":
            self.postgres.create_database()
        self._done.add(name)

    def _own_ports(self, name: str) -> list[str]:
        service = self._services[name]
        return [*service.get("expose", ()), *(port.rsplit(":", 1)[1] for port in service.get("ports", ()))]

    def _lay_out(self) -> None:
        """What the image brings to /opt/airflow, and the volumes."""
        (self._folder / "tmp").mkdir(parents=True)
        copy = rf"^COPY --chown=\S+ (\S+) {_HOME}(/\S+)$"
        copies = re.findall(copy, (SOURCE / "Dockerfile").read_text(), flags=re.MULTILINE)
        for source, target in copies:
            place = Path(f"{self._folder}{target}")
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (SOURCE / source).is_dir() else shutil.copy)(SOURCE / source, place)
        for mount in {mount for service in self._services.values() for mount in mounts(service)}:
            place = Path(mount.target.replace(_HOME, str(self._folder)))
            if mount.source.startswith("."):
                place.symlink_to(SOURCE / mount.source)
            elif mount.target.startswith(_HOME) and not mount.subpath:
                place.mkdir(parents=True, exist_ok=True)

    def _here(self, name: str, text: str) -> str:
        text = re.sub("^/tmp/", f"{_HOME}/tmp/", text).replace(_HOME, str(self._folder))
        for (service, port), ours in self._ports.items():
            host = f"(?:{service}|localhost)" if service == name else service
            text = re.sub(rf"(?<![\w.-]){host}:{port}(?!\d)", f"127.0.0.1:{ours}", text)
        if text in self._own_ports(name):
            return str(self.port(name, text))
        return "127.0.0.1" if text in self._services else text

    def _command(self, name: str) -> list[str]:
        return [self._here(name, part) for part in self._services[name]["command"]]

    def _environment(self, name: str) -> dict[str, str]:
        if name == "postgres":
            return self.postgres.environment
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)}
        given = {key: self._here(name, value) for key, value in self._services[name]["environment"].items()}
        of_image = {
            **self._of_image,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self._folder),
            "HOSTNAME": socket.gethostname(),
            "PYTHONUNBUFFERED": "1",
        }
        return inherited | of_image | given | _LOOPBACK

    def _log(self, name: str) -> Path:
        return self._folder / "output" / f"{name}.log"

    def _run(self, name: str) -> None:
        done = subprocess.run(self._command(name), env=self._environment(name), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")

    def _wait(self, name: str) -> None:
        kind, *test = self._services[name]["healthcheck"]["test"]
        command = [self._here(name, part) for part in test]
        if kind == "CMD-SHELL":
            command = ["/bin/sh", "-c", *command]
        limit = time.monotonic() + PATIENCE
        while True:
            self._processes.check_alive()
            done = subprocess.run(command, env=self._environment(name), capture_output=True, text=True)
            if done.returncode == 0:
                return
            if time.monotonic() > limit:
                said = f"{done.stdout}{done.stderr}"[-1000:]
                raise RuntimeError(
                    f"{name} is not healthy: {command} says {said}; its log:\n{last_lines(self._log(name))}"
                )
            time.sleep(0.5)
