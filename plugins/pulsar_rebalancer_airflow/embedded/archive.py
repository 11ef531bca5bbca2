"""A class-data archive of Spark's classes: loading them from it halves the start of a Spark application."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.clusters import ClusterEntry
from pulsar_rebalancer.collect import collect, save
from pulsar_rebalancer.resolution import RunParams
from pulsar_rebalancer.run import Validation
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.simulation.scenario import build
from pulsar_rebalancer.simulation.serve import running
from pulsar_rebalancer.state import DecisionState, MovesState
from pulsar_rebalancer.storage import ClusterStorage
from pulsar_rebalancer_airflow.embedded.errors import EmbeddedError
from pulsar_rebalancer_airflow.embedded.java import java_command, java_version
from pulsar_rebalancer_airflow.operators.decide import CONF, JAVA_OPTIONS, application, driver_environment

if TYPE_CHECKING:
    from pulsar_rebalancer.storage import Folder


def archive_path(cache: Path) -> Path:
    """Where the archive for this Spark, this Java and its options belongs: one of others would be ignored.

    Raises:
        EmbeddedError: there is no Java that Spark could run on.
    """
    made_of = (version("pyspark"), java_version(), str(shutil.which(java_command())), JAVA_OPTIONS)
    key = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    return cache / f"spark-{key}.jsa"


def make_archive(path: Path) -> None:
    """Run the application once on a small simulated cluster, and keep the classes that it loaded.

    Raises:
        EmbeddedError: the application failed, with the last lines of its output.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the folder of the archive, which takes the place of an older one at once; of its own for runs side by side.
    with tempfile.TemporaryDirectory(dir=path.parent) as root:
        draft = Path(root) / path.name
        run = asyncio.run(_sample_run(root))
        options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={draft} -Xlog:cds=error"
        settings = [f"{name}={value}" for name, value in CONF.items()]
        command = ["spark-submit", "--master", "local[2]", "--driver-java-options", options]
        command += [part for setting in settings for part in ("--conf", setting)]
        with driver_environment():
            done = subprocess.run(
                [*command, application(), "--root", root, "--run", run.uri], capture_output=True, text=True, check=False
            )
        if done.returncode or not draft.exists():
            said = (done.stdout + done.stderr)[-3000:]
            raise EmbeddedError(f"the Spark application failed on a small cluster:\n{said}")
        draft.replace(path)


async def _sample_run(root: str) -> Folder:
    cluster = build(brokers=4, bundles=40)
    storage = ClusterStorage(root, "sample")
    now = datetime.now(UTC)
    run = storage.new_run(now)
    # Thresholds of zero: the pairs fire, so that the classes of every step are loaded.
    given = {"low_threshold": 0, "high_threshold": 0, "hit_count_low": 1, "min_unload_message": 0}
    entry = ClusterEntry(name="sample", given=given, settings=Settings(**given))
    with running(cluster) as brokers:
        connection = AdminConnection(seeds=(brokers.urls[0],), token=SecretStr(brokers.token))
        async with PulsarAdmin(connection) as admin:
            collected = await collect(admin, entry, RunParams(), now=now, airflow_run_id="sample", requested_by="")
    save(collected, run)
    state = {"decision": DecisionState().model_dump(mode="json"), "moves": MovesState().model_dump(mode="json")}
    (run / "input" / "state.json").write_json(state)
    Validation().write(run)
    return run
