"""Spark applications as processes, with the product's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.benchmarks.measure import ROOT, Taken, process
from pulsar_rebalancer_airflow.operators.spark_application import CONF, JAVA_OPTIONS, LOCAL_CONF, driver_environment
from pulsar_rebalancer_airflow.spark_archive import cached_archive

if TYPE_CHECKING:
    from collections.abc import Callable

MASTER = "local[2]"


def submit_command(**conf: str) -> list[str]:
    """Return `spark-submit` and its options, to which an application and its arguments are added."""
    settings = CONF | LOCAL_CONF | conf
    return ["spark-submit", "--master", MASTER] + [f"--conf={name}={value}" for name, value in settings.items()]


def submit(*application: str) -> Callable[[], Taken]:
    """Return what runs an application with its arguments once, from the class-data archive of `make run`."""
    archive = f"{JAVA_OPTIONS} -XX:SharedArchiveFile={cached_archive(ROOT / '.cache')} -Xshare:auto"

    def once() -> Taken:
        with driver_environment():
            return process([*submit_command(), "--driver-java-options", archive, *application])

    return once
