"""The archive is made with the options that the driver's Java gets: with others it would be ignored without a word."""

import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

from pulsar_rebalancer_airflow import spark_archive as archive_module
from pulsar_rebalancer_airflow.operators.spark_application import JAVA_OPTIONS
from pulsar_rebalancer_airflow.spark_archive import make_archive


def test_made_with_the_options_of_the_driver(monkeypatch, tmp_path):
    def sample_run(_: str) -> Any:
        return mock.Mock(uri="run")

    def submit(command: list[str], **given: Any) -> Any:
        options = command[command.index("--driver-java-options") + 1]
        ours, _, more = options.partition(" -XX:ArchiveClassesAtExit=")
        assert ours == JAVA_OPTIONS
        Path(more.split()[0]).write_text("classes")
        return mock.Mock(returncode=0)

    monkeypatch.setattr(archive_module, "_create_sample_run", sample_run)
    monkeypatch.setattr(subprocess, "run", submit)

    make_archive(tmp_path / "cache" / "spark.jsa")

    assert [(path.name, path.read_text()) for path in (tmp_path / "cache").iterdir()] == [("spark.jsa", "classes")]
