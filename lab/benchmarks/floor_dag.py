"""The tasks of a run with nothing in them, and the least that Spark does in the place of `decide`; not scheduled."""

import os
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, TriggerRule, task

from pulsar_rebalancer_airflow.operators.spark_application import ARCHIVE_VARIABLE, CONF, JAVA_OPTIONS, LOCAL_CONF

ROOT, FOLDER = Path(os.environ["BENCHMARK_ROOT"]), Path(os.environ["BENCHMARK_FOLDER"])
OPTIONS = f"{JAVA_OPTIONS} -XX:SharedArchiveFile={os.environ[ARCHIVE_VARIABLE]} -Xshare:auto"


@task
def nothing() -> list[int]:
    """Do nothing, and answer with nothing to be mapped over."""
    return []


@task
def never(each: int) -> None:
    """Be mapped over nothing, as what moves is while the gate is closed."""


with DAG("benchmark_floor", schedule=None):
    tasks = {name: nothing.override(task_id=name)() for name in ("collect", "validate", "record", "gate")}
    decide = SparkSubmitOperator(
        task_id="decide",
        application=str(ROOT / "lab" / "benchmarks" / "spark_floor.py"),
        application_args=[str(FOLDER / "row.parquet"), str(FOLDER / "row-written.parquet")],
        conf=CONF | LOCAL_CONF | {"spark.driver.extraJavaOptions": OPTIONS},
    )
    split = never.override(task_id="split").expand(each=tasks["record"])
    rule = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    unload = never.override(task_id="unload", trigger_rule=rule).expand(each=tasks["gate"])
    report = nothing.override(task_id="report", trigger_rule=TriggerRule.ALL_DONE)()
    tasks["collect"] >> tasks["validate"] >> decide >> tasks["record"] >> tasks["gate"] >> split >> unload >> report
