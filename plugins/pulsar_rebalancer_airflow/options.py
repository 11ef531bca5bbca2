"""This deployment: options in Airflow's configuration, locations, DAG ids, and how errors end a task."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.errors import RebalancerError, SettingsError
from pulsar_rebalancer.pulsar.connection import checked_extra
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.snapshot import find_run
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders import registry
from pulsar_rebalancer_airflow.provider import OPTIONS, SECTION

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context


VARIABLES = f"AIRFLOW__{SECTION.upper()}__"
"""Prefix of Airflow's environment variables for the options."""


def option(name: str) -> str:
    """Return an option's value; empty if it has none. An unknown option raises `wrong_setting`."""
    given = {variable.removeprefix(VARIABLES).lower() for variable in os.environ if variable.startswith(VARIABLES)}
    if conf.has_section(SECTION):
        given |= set(conf.options(SECTION))
    if unknown := sorted(given - OPTIONS.keys()):
        raise option_error(unknown[0], f"unknown option; known: {', '.join(OPTIONS)}")
    return conf.get(SECTION, name, fallback="") or ""


def option_path(name: str) -> Path:
    path = option(name)
    if not Path(path).is_absolute():
        raise option_error(name, f"{path!r} is not an absolute path")
    return Path(path)


def option_error(name: str, problem: str) -> SettingsError:
    return SettingsError(Reason.WRONG_SETTING, f"[{SECTION}] {name}: {problem}")


registry.PERMITTED_SOURCES.append(partial(option, "strategies"))

CLUSTERS_VARIABLE = f"{VARIABLES}CLUSTERS_FILE"

STORAGE_VARIABLE = f"{VARIABLES}STORAGE_ROOT"
"""Environment variable with the storage root, a path or an object-store URI."""

REBALANCE_DAG = "pulsar_rebalance__"
"""Prefix of the id of the DAG that rebalances a cluster. In every DAG id, the cluster's name follows the prefix."""

BY_HAND_DAG = "pulsar_by_hand__"

APPLY_DAG = "pulsar_apply__"

REPLAY_DAG = "pulsar_replay__"

CONTROL_DAG = "pulsar_control__"

ROLL_DAG = "pulsar_roll__"

PAGE_ROUTE = "pulsar-balance"
"""Route of the cluster page within the UI."""

PREFIX = "/pulsar_rebalancer"
"""Path prefix for this package's pages on the API server."""


def clusters_file() -> Path:
    return option_path("clusters_file")


def storage_root() -> str:
    """Return the storage root, a path or an object-store URI.

    Raises SettingsError `wrong_setting` if a path is relative, or if a URI contains a user, a password or a query:
    pages and logs show the root, so credentials belong in Airflow's environment and the Spark connection.
    """
    root = option("storage_root")
    if "://" not in root:
        return str(option_path("storage_root"))
    if set("@?#") & set(root):
        raise option_error("storage_root", "the address must not contain a user, a password or a query")
    return root


def storage_of(cluster: str) -> ClusterStorage:
    return ClusterStorage(storage_root(), cluster)


def entries_by_dag_id(entries: Iterable[ClusterEntry]) -> dict[str, ClusterEntry]:
    dags: dict[str, ClusterEntry] = {}
    for entry in sorted(entries, key=lambda entry: bool(entry.error)):
        names = (f"{REBALANCE_DAG}{entry.name}{suffix}" for suffix in ("", *(f"__broken_{n}" for n in range(1, 1000))))
        dags[next(name for name in names if name not in dags)] = entry
    return dags


NOTE = "note"
FOLDER = "folder"
"""XCom key of the run folder that a task worked on."""


def run_folder(context: Context, cluster: str, address: object) -> StoragePath:
    """Return the current run's folder. Its address is checked, because it comes from an XCom.

    The address is also stored as an XCom of the task, to record which folder its other XComs refer to (`current_xcom`).

    Raises:
        PlanError: `foreign_run` if the folder belongs to another cluster or DAG run.
        SnapshotError: the run's request cannot be read.
    """
    context["ti"].xcom_push(key=FOLDER, value=str(address))
    return find_run(storage_of(cluster), str(address), context["dag_run"].run_id)


def current_xcom(context: Context, task_id: str, key: str) -> Any:
    """Return a task's XCom if it refers to the run's current folder; None if it refers to an earlier folder.

    If *collect* is cleared, the run gets a new folder; tasks that have not run again keep their old XComs.
    """
    ti = context["ti"]
    about, present = ti.xcom_pull(task_ids=task_id, key=FOLDER), ti.xcom_pull(task_ids="collect", key="return_value")
    return ti.xcom_pull(task_ids=task_id, key=key) if about in (None, present) else None


def read_extra(connection: Connection, known_keys: Set[str]) -> dict[str, object]:
    """Return the extra's keys and values, except keys without a value.

    Raises SettingsError `wrong_setting` for keys that are not known, because a misspelt key could leave a
    protection switched off; the message does not name the connection.
    """
    try:
        given: object = connection.extra_dejson
    except RecursionError:
        raise SettingsError(Reason.WRONG_SETTING, "extra: the JSON is nested too deeply") from None
    return checked_extra(given, known_keys, "extra")


FAILURE = "failure"
"""XCom key of a failed task's reason code."""

MESSAGE = "failure_message"
"""XCom key of a failed task's error message."""


def error_sentence(error: RebalancerError) -> str:
    action = error.reason.action
    return f"{error} {action}".strip() if action not in error.message else str(error)


@contextmanager
def fail_unless_temporary(context: Context | None = None) -> Iterator[None]:
    """Convert the rebalancer's errors to AirflowFailException, which is not retried, unless they are temporary.

    The reason code and the message are stored as XComs of the context's task; None stores none.
    """
    try:
        yield
    except RebalancerError as error:
        if context is not None:
            context["ti"].xcom_push(key=FAILURE, value=error.reason)
            context["ti"].xcom_push(key=MESSAGE, value=error.message)
        if error.reason.has(Trait.PASSING):
            raise
        raise AirflowFailException(error_sentence(error)) from error
