"""A PostgreSQL server of its own, as the image of the compose file would set it up."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.debian import installed

from pulsar_rebalancer_airflow.embedded.local_airflow import Processes

_INSTALLED = Path("/usr/lib/postgresql")


class Postgres:
    """A server on loopback, its data in a new folder; for root, who may not run it, as Debian's user `postgres`."""

    def __init__(self, environment: Mapping[str, str], port: int) -> None:
        self.programs = _programs()
        self._given = environment
        self._port = port
        self._folder = Path(tempfile.mkdtemp(prefix="pulsar-rebalancer-postgres-"))
        self._prefix: list[str] = []
        if os.getuid() == 0:
            self._prefix = ["runuser", "-u", "postgres", "--"]
            os.chown(self._folder, pwd.getpwnam("postgres").pw_uid, -1)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self._port),
            "PGUSER": self._given["POSTGRES_USER"],
            "PGPASSWORD": self._given["POSTGRES_PASSWORD"],
        }

    def start(self, processes: Processes, log: Path) -> None:
        password = self._folder / "password"
        password.write_text(self._given["POSTGRES_PASSWORD"])
        password.chmod(0o644)  # in a folder that is closed to others
        initdb = [*self._prefix, str(self.programs / "initdb"), "--pgdata", str(self._folder / "data"), "--no-sync"]
        initdb += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]
        initdb += ["--username", self._given["POSTGRES_USER"], "--pwfile", str(password)]
        made = subprocess.run(initdb, capture_output=True, text=True, cwd="/")
        if made.returncode:
            raise RuntimeError(f"initdb failed:\n{made.stdout}{made.stderr}")
        settings = ["-h", "127.0.0.1", "-p", str(self._port), "-c", "unix_socket_directories=", "-c", "fsync=off"]
        command = [*self._prefix, str(self.programs / "postgres"), "-D", str(self._folder / "data"), *settings]
        processes.start("postgres", command, {"PATH": os.environ["PATH"]}, log)

    def create_database(self) -> None:
        subprocess.run(["createdb", self._given["POSTGRES_DB"]], env=self.environment, check=True)

    def ask(self, query: str) -> list[str]:
        command = ["psql", "--no-psqlrc", "--tuples-only", "--no-align", self._given["POSTGRES_DB"], "--command", query]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")[:-1]

    def remove(self) -> None:
        shutil.rmtree(self._folder)


def _programs() -> Path:
    """The latest installed server's folder; on Debian as root one is installed if there is none."""
    config = Path("/etc/postgresql-common/createcluster.conf")
    if not (_found() or config.exists()) and os.getuid() == 0 and shutil.which("apt-get"):
        # Without this Debian starts a server of its own on the usual port.
        config.parent.mkdir(exist_ok=True)
        config.write_text("create_main_cluster = false\n")
    found = installed("postgresql", _found)
    if not found:
        raise RuntimeError("the deployment is tested with PostgreSQL: install it (Debian: apt-get install postgresql)")
    return found[-1]


def _found() -> list[Path]:
    return sorted((path.parent for path in _INSTALLED.glob("*/bin/initdb")), key=lambda path: int(path.parent.name))
