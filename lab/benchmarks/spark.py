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


def with_archive() -> list[str]:
    """Return the options of Java, with the class-data archive of `make run`."""
    archive = cached_archive(ROOT / ".cache")
    return ["--driver-java-options", f"{JAVA_OPTIONS} -XX:SharedArchiveFile={archive} -Xshare:auto"]


def submit(*application: str) -> Callable[[], Taken]:
    """Return what runs an application with its arguments once, from the class-data archive of `make run`."""
    command = [*submit_command(), *with_archive(), *application]

    def once() -> Taken:
        with driver_environment():
            return process(command)

    return once
