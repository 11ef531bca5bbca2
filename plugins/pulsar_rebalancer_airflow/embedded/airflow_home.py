"""The folder of an embedded Airflow: its settings, connections, clusters file, database and logs."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import secrets
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import JsonValue

from pulsar_rebalancer.storage.path import StoragePath, make_private_folder
from pulsar_rebalancer_airflow.embedded import MakeRunError
from pulsar_rebalancer_airflow.operators.spark_application import ARCHIVE_VARIABLE
from pulsar_rebalancer_airflow.options import CLUSTERS_VARIABLE, STORAGE_VARIABLE

CHECKOUT = Path(__file__).resolve().parents[3]
"""Root of the source tree, with the DAG file and the configuration of the embedded Airflow."""

_PORT_COUNT = 12_000
_port_offsets = itertools.count(secrets.randbelow(_PORT_COUNT))
_FOLDER_ADVICE = "choose another folder (make run FOLDER=…, or --folder)"


@dataclass(frozen=True)
class AirflowHome:
    """The folder of an embedded Airflow (AIRFLOW_HOME), and its contents.

    The connections are passed to Airflow only in environment variables. `port` is the UI's loopback port.
    `spark_archive` is a class-data archive, which halves Spark's start-up time, or None.
    """

    folder: Path
    cluster_settings: dict[str, dict[str, JsonValue]]
    connections: dict[str, dict[str, JsonValue]]
    port: int = field(default_factory=lambda: find_free_port())
    spark_archive: Path | None = None
    dags_folder: Path = CHECKOUT / "dags"

    @property
    def storage_folder(self) -> Path:
        return self.folder / "storage"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def password_file(self) -> Path:
        """Return the path of the file with the password of `admin`."""
        return self.folder / "simple_auth_manager_passwords.json.generated"

    def prepare(self, *, keep_data: bool) -> None:
        """Create the folder; `keep_data` keeps the database, runs and state from an earlier start.

        Raises MakeRunError if the folder was not created by an earlier start, so it must not be deleted.
        """
        if not keep_data and self.folder.exists():
            if any(self.folder.iterdir()) and not self._marker_path.exists():
                raise MakeRunError(
                    f"{self.folder} cannot be replaced, because no earlier run created this folder: "
                    f"delete the folder if you do not need it, or {_FOLDER_ADVICE}"
                )
            shutil.rmtree(self.folder)
        make_private_folder(self.folder.parent)
        self._marker_path.touch(mode=0o600)
        make_private_folder(self.folder / "config")
        self.folder.chmod(0o700)
        settings = "airflow_local_settings.py"
        shutil.copyfile(CHECKOUT / "deploy" / settings, self.folder / "config" / settings)
        self.clusters_file.write_text(yaml.safe_dump({"clusters": self.cluster_settings}), encoding="utf-8")
        if not self.password_file.exists():
            # Otherwise Airflow generates a password and prints it to its log.
            StoragePath(str(self.password_file)).write_json({"admin": secrets.token_hex(12)})

    @property
    def _marker_path(self) -> Path:
        """Return the path of the mark of `prepare`, outside the folder to outlast an interrupted deletion."""
        return self.folder.parent / f".{self.folder.name}.made"

    @property
    def clusters_file(self) -> Path:
        return self.folder / "config" / "pulsar_clusters.yaml"

    def environment(self) -> dict[str, str]:
        """Return every Airflow process's environment. `spark-submit` runs the first `python3` in its `PATH`."""
        tuned = {
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags_folder),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.folder / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            # Every task loads the DAG file; a busy machine may take minutes.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            # Airflow sets the permissions of task logs itself and ignores the umask.
            "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FOLDER_PERMISSIONS": "0o700",
            "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FILE_PERMISSIONS": "0o600",
            "AIRFLOW__STATE_STORE__MAX_VALUE_STORAGE_BYTES": str(16 * 1024 * 1024),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder / 'airflow.db'}",
            CLUSTERS_VARIABLE: str(self.clusters_file),
            STORAGE_VARIABLE: str(self.storage_folder),
        }
        if self.spark_archive is not None:
            tuned[ARCHIVE_VARIABLE] = str(self.spark_archive)
        connections = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in self.connections.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SPARK_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return inherited | tuned | connections | {"PATH": path, "PYTHONUNBUFFERED": "1"}


@contextmanager
def lock_folder(folder: Path) -> Iterator[Path]:
    """Lock a folder for exclusive use, and yield its path with all links resolved; create a missing folder.

    Raises MakeRunError if another run uses the folder, if another user can write to it or replace it, or if
    the lock file is a link.
    """
    try:
        _check_folder_permissions(folder)
        folder = folder.resolve()
        make_private_folder(folder)
        _check_folder_permissions(folder)  # another user may have created it meanwhile
        descriptor = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        why = f"{error.filename} cannot be written ({error.strerror})"
        raise MakeRunError(f"{why}: if this file is a link, remove the link; otherwise, {_FOLDER_ADVICE}") from None
    with os.fdopen(descriptor, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MakeRunError(f"another run is using {folder}: end that run, or {_FOLDER_ADVICE}") from None
        yield folder


def _check_folder_permissions(folder: Path) -> None:
    """Check that only the user and root can replace the contents of a folder."""
    # Anyone who can replace the source tree can run any code anyway.
    trusted = {CHECKOUT, *CHECKOUT.parents}
    ends = {folder.absolute(), folder.resolve()}
    for step in sorted(ends | {parent for end in ends for parent in end.parents} - trusted):
        if not os.path.lexists(step):
            continue
        status = step.lstat()
        if status.st_uid not in (0, os.getuid()):
            owner = f"{step} belongs to another user (id {status.st_uid})"
            raise MakeRunError(f"{owner}, who could replace the files of this run: {_FOLDER_ADVICE}")
        kept = stat.S_ISLNK(status.st_mode) or (status.st_mode & stat.S_ISVTX and step not in ends)
        if status.st_mode & 0o022 and not kept:
            raise MakeRunError(
                f"other users may write to {step}, and could replace the files of this run: "
                f"run chmod go-w {step}, or {_FOLDER_ADVICE}"
            )


def find_free_port() -> int:
    """Return a free port on the loopback interface, another one at each call.

    By default, Linux does not use it for outgoing connections, so it is likely to stay free.
    """
    for _ in range(_PORT_COUNT):
        port = 20_000 + next(_port_offsets) % _PORT_COUNT
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise MakeRunError(f"no port between 20000 and {19_999 + _PORT_COUNT} is free")
