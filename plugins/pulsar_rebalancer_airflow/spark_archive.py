"""Create a class-data archive of Spark's classes, to halve the start-up time of Spark applications.

`python -m pulsar_rebalancer_airflow.spark_archive PATH` creates an archive. To use it on a worker, set
Airflow's option `[pulsar_rebalancer] spark_archive` to its path.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pulsar_rebalancer.config.clusters_file import RunSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import bundle_columns
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, CLUSTER, MEANS, TRAFFIC, table, write
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.java import java_command, java_version
from pulsar_rebalancer_airflow.operators.spark_application import (
    CONF,
    JAVA_OPTIONS,
    LOCAL_CONF,
    app_path,
    driver_environment,
)

_CLUSTER = "sample"
_FIRING: dict[str, Any] = {"low_threshold": 0, "high_threshold": 0, "hit_count_low": 1, "min_unload_message": 0}
"""Settings with which every pair fires, so that the classes of every step are loaded."""


class ArchiveError(RebalancerError):
    """The Spark application failed on the sample cluster. The message ends with the last lines of its output."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pulsar_rebalancer_airflow.spark_archive",
        description="Create a class-data archive, which halves Spark's start-up time.",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="path of the archive, for the option spark_archive")
    try:
        make_archive(parser.parse_args(arguments).path)
    except RebalancerError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0


def cached_archive(cache: Path, before_making: Callable[[], None] = lambda: None) -> Path:
    """Return the path of the archive in the folder `cache`; create the archive if it is missing.

    An archive is valid only for the releases of Spark and Java, and for the Java options, with which it was
    created. Raises `wrong_setting` if Spark can use no Java, or ArchiveError.
    """
    archive = archive_path(cache)
    if not archive.exists():
        before_making()
        make_archive(archive)
    return archive


def archive_path(cache: Path) -> Path:
    """Return the path for the installed Spark and Java and Java's options; Java ignores other archives.

    Raises SettingsError `wrong_setting` if there is no Java that Spark can use.
    """
    ours = Path(__file__).read_text(encoding="utf-8")
    made_of = (version("pyspark"), java_version(), str(shutil.which(java_command())), JAVA_OPTIONS, ours)
    key = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    return cache / f"spark-{key}.jsa"


def make_archive(path: Path) -> None:
    """Decide a run of a small cluster, and write the loaded classes to an archive.

    Raises ArchiveError, with the last lines of the output, if the application failed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A folder next to the archive, so that an older archive is replaced atomically; its own, for parallel runs.
    with tempfile.TemporaryDirectory(dir=path.parent) as root:
        draft = Path(root) / path.name
        run = _create_sample_run(root)
        options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={draft} -Xlog:cds=error"
        settings = [f"{name}={value}" for name, value in (CONF | LOCAL_CONF).items()]
        command = ["spark-submit", "--master", "local[2]", "--driver-java-options", options]
        command += [part for setting in settings for part in ("--conf", setting)]
        command += [app_path("application"), "--root", root, "--run", run.uri]
        with driver_environment():
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not draft.exists():
            output = (done.stdout + done.stderr)[-3000:]
            raise ArchiveError(Reason.TASK_FAILED, f"the Spark application failed on sample data:\n{output}")
        draft.replace(path)


def _create_sample_run(root: str) -> StoragePath:
    storage, now = ClusterStorage(root, _CLUSTER), datetime.now(UTC)
    run = storage.new_run_folder(now)
    of_run: dict[str, Any] = {"cluster": _CLUSTER, "collected_at": now}
    brokers = [f"broker-{n}:8080" for n in range(4)]
    load = {name: 100.0 * (n + 1) for n, name in enumerate(brokers)}
    bundles: list[dict[str, Any]] = [
        {"cluster": _CLUSTER, "broker": broker, "bundle": f"sample/{broker[:8]}/0x{n:08x}_0x{n + 1:08x}"}
        | {"owners": 1, "policy": "isolation" if broker is brokers[0] else None}
        | dict.fromkeys(TRAFFIC, load[broker])
        | dict.fromkeys(("topics", "producers", "consumers", "cache_size"), 1)
        for broker in brokers
        for n in range(10)
    ]
    rows = [
        of_run
        | {"broker": broker, "listings": 1, "last_update": now, "cpu_usage": load[broker] / 5, "cpu_limit": 100.0}
        | {"bundles": 10, **dict.fromkeys(TRAFFIC, 10 * load[broker])}
        for broker in brokers
    ]
    tables = {"cluster": ([of_run], CLUSTER), "brokers": (rows, BROKERS), "bundles": (bundles, BUNDLES)}
    write(run, {name: table(*content) for name, content in tables.items()})
    # Moving averages (means) of an earlier run: a run with stored means joins them with its bundles.
    (storage.state / "means-0.parquet").write_table(table(bundle_columns.update_means(bundles, []), MEANS))
    reserved = IsolationPolicy(name="vip", namespaces=("sample/broker-0",), primary=("elsewhere",), secondary=())
    resolved = RunSettings(settings=Settings(**_FIRING), origins={})
    RunRequest(cluster=_CLUSTER, airflow_run_id="sample", resolved=resolved, collected_at=now).write(run)
    StateBefore(decision=DecisionState(means="means-0.parquet")).write(run)
    Policies(isolation=(reserved,)).write(run)
    Validation().write(run)
    return run


if __name__ == "__main__":
    sys.exit(main())
