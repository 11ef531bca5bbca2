"""What a documented command is exercised by; each takes the command's words."""

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import ast
import copy
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from airflow.cli import cli_parser
from airflow.dag_processing.dagbag import DagBag
from airflow.models.connection import Connection as StoredConnection
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.sdk import Connection
from airflow.utils.session import create_session
from lab.benchmarks import page
from lab.benchmarks.results import PARTS
from lab.experiments.__main__ import _options
from lab.experiments.scenario import load_all
from lab.families import family
from lab.families.__main__ import _options as family_options
from lab.gain.__main__ import QUESTIONS
from lab.gain.__main__ import _options as gain_options
from sqlalchemy import select
from tests.airflow_home import HOME
from tests.deployment import compose, kubernetes
from tests.include.pulsar_rebalancer.command.test_check_age import committed, ended_run
from tests.project.documentation import ROOT, commands

from pulsar_rebalancer.command import check_age
from pulsar_rebalancer.command.__main__ import main
from pulsar_rebalancer.config.clusters_file import RunParams, parse_params
from pulsar_rebalancer.orders.in_force import parse_control_form
from pulsar_rebalancer.orders.roll_document import parse_roll_form
from pulsar_rebalancer.run.request import parse_form
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow import spark_archive
from pulsar_rebalancer_airflow.embedded.__main__ import _existing_cluster, _parser
from pulsar_rebalancer_airflow.hooks import PulsarAdminHook, _admin_connection
from pulsar_rebalancer_airflow.notifications import receiver_urls
from pulsar_simulator.configuration import Configuration


@cache
def bag() -> Any:
    return DagBag(dag_folder=str(HOME / "dags"), bundle_name="dags-folder")


def dags() -> dict[str, Any]:
    return bag().dags  # type: ignore[no-any-return]


def by(test: str) -> Callable[[list[str]], None]:
    """A test elsewhere; it has to be there."""

    def check(_words: list[str]) -> None:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists(), test
        if not name:
            return
        found = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert name in found, test

    return check


def make(*also: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    """A target of the Makefile, as `make` would run it."""

    def check(words: list[str]) -> None:
        dry = [*words, "--dry-run", "--no-print-directory"]
        only_path = {"PATH": os.environ["PATH"]}  # make would take other variables as its own
        said = subprocess.run(dry, cwd=ROOT, env=only_path, capture_output=True, text=True, check=True).stdout
        lines = said.replace("\\\n", "")
        own = [shlex.split(line) for line in lines.splitlines() if "setup.sh" not in line]
        assert own, lines
        for command in own:
            for one in also:
                one(command)

    return check


def embedded(words: list[str]) -> Any:
    """What `make run` starts takes these arguments."""
    assert words[1:3] == ["-m", "pulsar_rebalancer_airflow.embedded"]
    return _parser().parse_args(words[3:])


def observes(words: list[str]) -> None:
    """Two locks against moving anything."""
    name, entry, connection = _existing_cluster(embedded(words))
    assert (name, entry["mode"]) == ("own-broker-8080", "observe")
    found = _admin_connection(Connection.from_json(json.dumps(connection), conn_id="own"))
    assert found.read_only
    assert found.seeds == ("http://broker:8080",)


def set_on_brokers(words: list[str]) -> None:
    """The setting can be changed while brokers run."""
    assert words[:3] == ["pulsar-admin", "brokers", "update-dynamic-config"]
    assert words[3::2] == ["--config", "--value"]
    Configuration("local", stats_period=60).set(*words[4::2])


def strategy(words: list[str]) -> None:
    assert embedded(words).strategy == "ThresholdShedder"


def benchmark(words: list[str]) -> None:
    """It measures, here the smallest cluster of one part, and says what beside what."""
    assert words[1:3] == ["-m", "lab.benchmarks"]
    assert set(words[3:]) <= set(PARTS)
    said = measured()
    assert re.search(r"10 x 100: collect [\d.]+ s, \d+ MiB; slowest answer [\d.]+ s", said), said


@cache
def measured() -> str:
    words = [sys.executable, "-m", "lab.benchmarks", "collect", "--only", "10 x", "--repetitions", "1"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def benchmark_page(_: list[str]) -> None:
    """It puts values between markers that the page has, for every part on it."""
    text = page.PAGE.read_text(encoding="utf-8")
    for part in (page.CONDITIONS, *page.SHOWN):
        assert "measured like this" in page.renewed(text, part, "measured like this")
        assert page.renewed(text, part, "").count("<!-- ") == text.count("<!-- ")


def experiment(words: list[str]) -> None:
    """Its scenarios are there, and its arguments are taken."""
    assert words[1:3] == ["-m", "lab.experiments"]
    assert set(_options(words[3:]).names) <= set(load_all())


def of_families(words: list[str]) -> None:
    """Its families are there, and its arguments are taken."""
    assert words[1:3] == ["-m", "lab.families"]
    assert set(family_options(words[3:]).names) <= set(family.load_all())


def of_gain(words: list[str]) -> None:
    """Its arguments are taken, and its families are there."""
    assert words[1:3] == ["-m", "lab.gain"]
    gain_options(words[3:])
    assert {name for question in QUESTIONS.values() for name in question.families} <= set(family.load_all())


def done(*more: str) -> Callable[[list[str]], None]:
    """It runs as it stands, with these arguments more, and ends well."""

    def check(words: list[str]) -> None:
        words = [str(ROOT / words[0]) if words[0].startswith(".venv/") else words[0], *words[1:], *more]
        said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout + said.stderr

    return check


def helped(words: list[str]) -> None:
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = {command.split()[1] for command in commands() if command.startswith("make ")}
    assert targets <= {line.split()[0] for line in said.splitlines()}


def airflow(words: list[str]) -> None:
    given = cli_parser.get_parser().parse_args([word.replace("<cluster>", "east") for word in words[1:]])
    given.func(given)


def stored_connections() -> dict[str, str]:
    with create_session() as session:
        return {stored.conn_id: stored.get_uri() for stored in session.scalars(select(StoredConnection))}


def connection(words: list[str]) -> None:
    airflow(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_ADDED", stored_connections()[words[3]])
        found = PulsarAdminHook("added").get_connection_settings()
    assert found.seeds == ("https://broker-1:8443", "https://broker-2:8443")
    assert found.token is not None
    assert found.token.get_secret_value() == "<token>"
    assert (found.ca_file, found.read_only) == (Path("/etc/pulsar/ca.pem"), True)


def archived(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        made = mock.Mock()
        patch.setattr(spark_archive, "make_archive", made)
        assert spark_archive.main(words[3:]) == 0
        made.assert_called_once_with(Path("/opt/airflow/spark.jsa"))
    by("tests/plugins/pulsar_rebalancer_airflow/test_spark_archive.py::test_made_with_the_options_of_the_driver")(words)


def observes_simulated(words: list[str]) -> None:
    assert words[0] == "PULSAR_TOKEN=$(cat simulation.token)"
    assert any("--port 18080 --token-file simulation.token" in command for command in commands())
    make(embedded)(words[1:])


def connection_gone(words: list[str]) -> None:
    if words[3] not in stored_connections():
        airflow(["airflow", "connections", "add", words[3], "--conn-uri", "http://nowhere"])
    airflow(words)
    assert words[3] not in stored_connections()


def triggered(words: list[str]) -> None:
    airflow(words)
    with create_session() as session:
        dag_id = words[3].replace("<cluster>", "east")
        conf = session.scalars(select(DagRun.conf).where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc())).first()
    assert conf == json.loads(words[5])
    params = copy.deepcopy(dags()[dag_id].params)
    assert set(conf) <= set(params)
    params.update(conf)
    values = params.validate()
    if dag_id.startswith("pulsar_rebalance__"):
        assert parse_params(values) != RunParams()
    elif dag_id.startswith("pulsar_by_hand__"):
        parse_form({name: "0" * 64 if value == "<hash>" else value for name, value in values.items()})
    elif dag_id.startswith("pulsar_roll__"):
        parse_roll_form({name: "0" * 64 if value == "<id>" else value for name, value in values.items()})
    else:
        assert parse_control_form(values).reason


def unpaused(words: list[str]) -> None:
    airflow(words)
    with create_session() as session:
        found = session.get(DagModel, words[-1])
    assert found is not None
    assert found.is_paused is False


def deleted(words: list[str]) -> None:
    airflow(words)
    with create_session() as session:
        assert session.get(DagModel, words[-1]) is None


def asked_from_outside(words: list[str]) -> None:
    """The check of data age says that a run of yesterday is too old."""
    assert words[:2] == ["pulsar-rebalancer", "check-age"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert set(given) == {"--root", "--cluster", "--max-age-seconds"}
    with tempfile.TemporaryDirectory() as root:
        storage = ClusterStorage(root, given["--cluster"])
        ended_run(storage, 86_400)
        committed(storage, 86_400)
        for limit, code in ((given["--max-age-seconds"], check_age.CRITICAL), ("1e12", check_age.OK)):
            changed = given | {"--root": root, "--max-age-seconds": limit}
            assert main(["check-age", *(part for pair in changed.items() for part in pair)]) == code


def exported(words: list[str]) -> None:
    (assignment,) = words
    name, _, value = assignment.partition("=")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        assert [url.partition("://")[0] for url in receiver_urls(name.removeprefix("AIRFLOW_CONN_").lower())] == [
            "slack",
            "mailtos",
        ]


def wheel(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = f"{project['name'].replace('-', '_')}-{project['version']}-py3-none-any.whl"
    found = re.fullmatch(rf"dist/{re.escape(name)}\[([a-z,]+)\]", words[-1])
    assert found is not None, words
    assert set(found[1].split(",")) <= set(project["optional-dependencies"])


def composed(words: list[str]) -> None:
    if words[2] == "exec":
        image = compose.raw()["services"][words[3]]["image"]
        assert image.startswith("apachepulsar/pulsar:")
        assert words[4] in ("bin/pulsar-admin", "bin/pulsar-perf")
    by("tests/deployment/test_native.py::test_a_triggered_run_succeeds")(words)


def on_kubernetes(words: list[str]) -> None:
    """What is applied is there, in the namespace of the manifests; tests/deployment checks what is in it."""
    by("tests/deployment/test_kubernetes.py::test_manifests_name_only_objects_that_exist")(words)
    given = dict(pairwise(words))
    assert given.get("--namespace", kubernetes.NAMESPACE) == kubernetes.NAMESPACE
    assert all((ROOT / given[option]).exists() for option in ("--filename", "--values") if option in given)


def removed(words: list[str]) -> None:
    """The folder that goes is the cluster's own below the root that other commands name."""
    assert words[:2] == ["rm", "-r"]
    root, _, cluster = words[2].rpartition("/")
    assert cluster == "east"
    assert any(f"--root {root} " in command for command in commands())
