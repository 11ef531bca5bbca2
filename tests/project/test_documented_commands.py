"""Every command of the documents is exercised: here, or by a test that is named here."""

from __future__ import annotations

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

import ast
import copy
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from airflow.cli import cli_parser
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.connection import Connection as StoredConnection
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.sdk import Connection
from airflow.utils import db
from airflow.utils.session import create_session
from benchmarks import page
from benchmarks.__main__ import PARTS
from experiments.__main__ import _options
from experiments.scenario import load_all
from sqlalchemy import select
from tests.airflow_home import HOME
from tests.deployment import compose
from tests.include.pulsar_rebalancer import previous_release as previous
from tests.project.documentation import ROOT, commands, commands_in_blocks, prose

from pulsar_rebalancer import check_age
from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.config.resolution import RunParams, parse_params
from pulsar_rebalancer.control.form import parse_control_form
from pulsar_rebalancer.run.by_hand import parse_form
from pulsar_rebalancer_airflow import spark_archive
from pulsar_rebalancer_airflow.embedded.__main__ import _own_cluster, _parser
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook, _settings
from pulsar_rebalancer_airflow.notifications.notifier import receivers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EAST = "clusters: {east: {connection: pulsar_admin_east, alert_connection: pulsar_alerts}}"
BALANCED = "tests/integration/test_embedded.py::test_once_ends_when_the_cluster_is_balanced"
OWN_CLUSTER = "tests/integration/test_embedded.py::test_an_own_cluster_is_left_alone_and_ctrl_c_ends_every_process"
SIMULATION = "tests/project/test_documented_simulation.py::test_the_example"
ALL_DAGS = ("rebalance", "by_hand", "control", "maintenance", "watch")


# What a command is exercised by. Each takes the command's words.


def by(test: str) -> Callable[[list[str]], None]:
    """A test elsewhere; it has to be there."""

    def check(_: list[str]) -> None:
        file, _, name = test.partition("::")
        found = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert not name or name in found, test

    return check


def make(*also: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    """A target of the Makefile, as `make` would run it."""

    def check(words: list[str]) -> None:
        dry = [*words, "--dry-run", "--no-print-directory"]
        lines = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace("\\\n", "")
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
    name, entry, connection = _own_cluster(embedded(words))
    assert (name, entry["mode"]) == ("own-broker-8080", "observe")
    found = _settings(Connection(conn_id="own", **connection | {"extra": json.dumps(connection["extra"])}))
    assert found.read_only
    assert found.seeds == ("http://broker:8080",)


def strategy(words: list[str]) -> None:
    assert embedded(words).strategy is Strategy("ThresholdShedder")


def benchmark(words: list[str]) -> None:
    """It measures, here the smallest cluster of one part, and says what beside what."""
    assert words[1:3] == ["-m", "benchmarks"]
    assert set(words[3:]) <= set(PARTS)
    words = [sys.executable, *words[1:3], "collect", "--only", "10 x", "--repetitions", "1"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(r"10 x 100: collect [\d.]+ s, \d+ MiB; slowest answer [\d.]+ s", said), said


def benchmark_page(words: list[str]) -> None:
    """It puts figures between markers that the page has, for every part."""
    assert words[1:] == ["-m", page.__name__]
    text = page.PAGE.read_text(encoding="utf-8")
    for part in PARTS:
        assert "measured like this" in page.renewed(text, part, "measured like this")
        assert page.renewed(text, part, "").count("<!-- ") == text.count("<!-- ")


def experiment(words: list[str]) -> None:
    """Its scenarios are there, and its arguments are taken."""
    assert words[1:3] == ["-m", "experiments"]
    assert set(_options(words[3:]).names) <= set(load_all())


def done(*more: str) -> Callable[[list[str]], None]:
    """It runs as it stands, with these arguments more, and ends well."""

    def check(words: list[str]) -> None:
        words = [str(ROOT / words[0]) if words[0].startswith(".venv/") else words[0], *words[1:], *more]
        said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout + said.stderr

    return check


def helped(words: list[str]) -> None:
    """Every target that is documented has its line."""
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = {command.split()[1] for command in commands() if command.startswith("make ")}
    assert targets <= {line.split()[0] for line in said.splitlines()}


def airflow(words: list[str]) -> None:
    """Airflow's own command line, in this process."""
    given = cli_parser.get_parser().parse_args([word.replace("<cluster>", "east") for word in words[1:]])
    given.func(given)


def stored_connections() -> dict[str, str]:
    """URIs by id."""
    with create_session() as session:
        return {stored.conn_id: stored.get_uri() for stored in session.scalars(select(StoredConnection))}


def connection(words: list[str]) -> None:
    """The hook reads what was added, with everything that the text promises of it."""
    airflow(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_ADDED", stored_connections()[words[3]])
        found = PulsarAdminHook("added").get_connection_settings()
    assert found.seeds == ("https://broker-1:8443", "https://broker-2:8443")
    assert found.token is not None
    assert found.token.get_secret_value() == "<token>"
    assert (found.ca_file, found.read_only) == (Path("/etc/pulsar/ca.pem"), True)


def archived(words: list[str]) -> None:
    """It asks for the archive that workers are told of; what that is made of is tested beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_archive, "make_archive", mock.Mock())
        assert spark_archive.main(words[3:]) == 0
        spark_archive.make_archive.assert_called_once_with(Path("/opt/airflow/spark.jsa"))
    by("tests/plugins/pulsar_rebalancer_airflow/test_spark_archive.py::test_made_with_the_options_of_the_driver")(words)


def observes_simulated(words: list[str]) -> None:
    """The simulated cluster of the page, with its token."""
    assert words[0] == "PULSAR_TOKEN=$(cat simulation.token)"
    assert any("--port 18080 --token-file simulation.token" in command for command in commands())
    make(embedded, by(OWN_CLUSTER))(words[1:])


def connection_gone(words: list[str]) -> None:
    if words[3] not in stored_connections():
        airflow(["airflow", "connections", "add", words[3], "--conn-uri", "http://nowhere"])
    airflow(words)
    assert words[3] not in stored_connections()


def triggered(words: list[str]) -> None:
    """Airflow takes the run, and the DAG takes its parameters."""
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
    else:
        assert parse_control_form(values).changes


def posted(words: list[str]) -> None:
    """Airflow's REST API takes such a run; that it does is tested beside it."""
    address, document = words[1], json.loads(words[-1])
    assert address == "$AIRFLOW/api/v2/dags/pulsar_by_hand__east/dagRuns"
    assert set(document["conf"]) <= set(dags()["pulsar_by_hand__east"].params)
    by("tests/integration/test_by_hand.py::test_what_was_shown_is_carried_out")(words)


def unpaused(words: list[str]) -> None:
    """There is such a DAG, and its runs may start."""
    airflow(words)
    with create_session() as session:
        found = session.get(DagModel, words[-1])
    assert found is not None
    assert found.is_paused is False


def deleted(words: list[str]) -> None:
    """There is such a DAG, and Airflow forgets it."""
    airflow(words)
    with create_session() as session:
        assert session.get(DagModel, words[-1]) is None


def asked_from_outside(words: list[str]) -> None:
    """The check of data age says that what the previous release left is too old."""
    assert words[:3] == ["python", "-m", "pulsar_rebalancer.check_age"]
    given = dict(zip(words[3::2], words[4::2], strict=True)) | {"--root": str(previous.DATA), "--cluster": "east"}
    if len(words) > 3:
        assert set(given) == {"--root", "--cluster", "--max-age-seconds"}
        assert check_age.main([part for pair in given.items() for part in pair]) == check_age.CRITICAL
        assert check_age.main([*("--root", str(previous.DATA)), "--cluster", "east", "--max-age-seconds", "1e12"]) == 0


def exported(words: list[str]) -> None:
    """The notifier finds receivers in the connection."""
    (assignment,) = words
    name, _, value = assignment.partition("=")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        assert [url.partition("://")[0] for url in receivers(name.removeprefix("AIRFLOW_CONN_").lower())] == [
            "slack",
            "mailtos",
        ]


def wheel(words: list[str]) -> None:
    """The wheel that `make wheel` builds, with extras that are there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = f"{project['name'].replace('-', '_')}-{project['version']}-py3-none-any.whl"
    found = re.fullmatch(rf"dist/{re.escape(name)}\[([a-z,]+)\]", words[-1])
    assert found is not None, words
    assert set(found[1].split(",")) <= set(project["optional-dependencies"])


def versions(words: list[str]) -> None:
    """It shows both packages that install into one folder."""
    said = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=True).stdout
    (one, other) = re.findall(r"^pyspark(?:-client)? +(\S+)$", said, flags=re.MULTILINE)
    assert one == other


def composed(words: list[str]) -> None:
    """A command inside a container names one that the compose file has; tests/deployment tries the file out."""
    if words[2] == "exec":
        image = compose.raw()["services"][words[3]]["image"]
        assert image.startswith("apachepulsar/pulsar:")
        assert words[4] in ("bin/pulsar-admin", "bin/pulsar-perf")
    by("tests/deployment/test_native.py::test_a_triggered_run_succeeds")(words)


def removed(words: list[str]) -> None:
    """The folder that goes is the cluster's own below the root that other commands name."""
    assert words[:2] == ["rm", "-r"]
    root, _, cluster = words[2].rpartition("/")
    assert cluster == "east"
    assert any(f"--root {root} " in command for command in commands())


TABLE: dict[str, Callable[[list[str]], None]] = {
    "make run": make(embedded, by(BALANCED)),
    "make run ONCE=1": make(embedded, by(BALANCED)),
    "make run STRATEGY=ThresholdShedder": make(strategy, by(BALANCED)),
    "make run PULSAR=http://broker:8080": make(observes, by(OWN_CLUSTER)),
    "make test": make(by("tests/project/test_documented_commands.py")),
    "make test TESTS=tests/include": make(by("tests/project/test_documented_commands.py")),
    "make test-pulsar": make(by("tests/pulsar/test_rebalance.py")),
    "make lint": make(),
    "make benchmark": make(benchmark),
    "make benchmark PART=decide": make(benchmark),
    ".venv/bin/python -m benchmarks.page": benchmark_page,
    "make experiments": make(experiment),
    'make experiments NAME="jitter cold_start" SEEDS=2': make(experiment),
    "python -m experiments jitter --strategy my_package.my_module:shed": experiment,
    "make wheel": make(by("tests/project/test_wheel.py")),
    "make help": helped,
    "make setup": done("--dry-run"),
    "make lock": make(),
    ".venv/bin/pytest tests/include/pulsar_rebalancer/state": done("--collect-only", "--quiet"),
    ".venv/bin/pytest tests/include/pulsar_rebalancer/unload -k owner": done("--collect-only", "--quiet"),
    ".venv/bin/python scripts/reference.py": done("--check"),
    ".venv/bin/python scripts/pictures.py": done("--check"),
    "make audit": make(by("tests/project/test_audit.py")),
    "airflow connections add pulsar_admin_east --conn-json '{ "
    '"conn_type": "pulsar_admin", "schema": "https", "host": "broker-1,broker-2", "port": 8443, "password": "<token>", '
    '"extra": {"ca_file": "/etc/pulsar/ca.pem", "read_only": true} }\'': connection,
    "airflow dags trigger pulsar_rebalance__east "
    '--conf \'{"force": "two brokers were added", "force_threshold": 10}\'': triggered,
    'airflow dags trigger pulsar_control__east --conf \'{"action": "take_over", "reason": "..."}\'': triggered,
    'airflow dags trigger pulsar_control__east --conf \'{"action": "hand_back", "reason": "..."}\'': triggered,
    "airflow dags trigger pulsar_control__east --conf '{ "
    '"action": "pause", "until": "2027-01-02T06:00:00Z", "reason": "holiday freeze" }\'': triggered,
    "airflow dags trigger pulsar_by_hand__east --conf '{ "
    '"action": "unload", "bundles": ["acme/orders"], "destination": "broker-3:8080" }\'': triggered,
    "airflow dags trigger pulsar_by_hand__east --conf '{ "
    '"action": "release", "broker": "broker-3:8080", "reason": "the disks are in" }\'': triggered,
    'airflow dags trigger pulsar_by_hand__east --conf \'{"plan": "<hash>"}\'': triggered,
    'curl "$AIRFLOW/api/v2/dags/pulsar_by_hand__east/dagRuns" --oauth2-bearer "$TOKEN" --json '
    '\'{ "logical_date": null, "conf": {"plan": "<hash>"} }\'': posted,
    "python -m pulsar_rebalancer.check_age": asked_from_outside,
    "python -m pulsar_rebalancer.check_age --root /var/lib/pulsar-rebalancer --cluster east "
    "--max-age-seconds 300": asked_from_outside,
    'pip install "dist/pulsar_rebalancer-0.1.0-py3-none-any.whl[alerts,extensible]"': wheel,
    "pip list": versions,
    "python -m pulsar_rebalancer_airflow.spark_archive /opt/airflow/spark.jsa": archived,
    "python -m pulsar_simulator": by(SIMULATION),
    **dict.fromkeys(commands_in_blocks("simulation.md"), by(SIMULATION)),
    'PULSAR_TOKEN="$(cat simulation.token)" make run PULSAR=http://127.0.0.1:18080': observes_simulated,
    'AIRFLOW_CONN_PULSAR_ALERTS=\'{"conn_type": "apprise", "extra": {"config": [ {"path": "slack://…"}, '
    '{"path": "mailtos://user:password@mail.example.com?to=ops@example.com"}]}}\'': exported,
    "deploy/make_env.sh": by("tests/deployment/test_compose.py::test_secrets_that_are_there_are_not_replaced"),
    "docker compose up --detach --build": composed,
    "docker compose ps": composed,
    "docker compose config --resolve-image-digests": composed,
    "docker compose exec pulsar-broker-1 bin/pulsar-admin namespaces create public/trial --bundles 16": composed,
    "docker compose exec pulsar-broker-1 bin/pulsar-perf produce --num-topics 32 --rate 5000 "
    "public/trial/load": composed,
    "docker compose down": composed,
    "docker compose down --volumes": composed,
    "rm -r /var/lib/pulsar-rebalancer/east": removed,
    "airflow dags unpause pulsar_rebalance__east": unpaused,
    "airflow connections delete pulsar_admin_east": connection_gone,
    **{f"airflow dags delete --yes pulsar_{kind}__east": deleted for kind in ALL_DAGS},
}
"""Commands that delete come last."""


@pytest.fixture(scope="module", autouse=True)
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An Airflow whose database knows the DAGs of a cluster `east`."""
    folder = tmp_path_factory.mktemp("documented")
    (folder / "clusters.yaml").write_text(EAST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSAR_REBALANCER_CLUSTERS", str(folder / "clusters.yaml"))
        patch.setenv("PULSAR_REBALANCER_STORAGE", str(folder / "storage"))
        db.initdb()
        shutil.copy(ROOT / "dags" / "pulsar_rebalancer_dags.py", HOME / "dags")
        DagBundlesManager().sync_bundles_to_db()
        sync_bag_to_db(_bag(), "dags-folder", None)
        yield
        (HOME / "dags" / "pulsar_rebalancer_dags.py").unlink()


@cache
def _bag() -> Any:
    return DagBag(dag_folder=str(HOME / "dags"), bundle_name="dags-folder")


def dags() -> dict[str, Any]:
    return _bag().dags  # type: ignore[no-any-return]


@pytest.mark.parametrize("command", TABLE)
def test_command(command: str) -> None:
    TABLE[command](shlex.split(command))


def test_every_command_is_in_the_table_and_the_other_way_round() -> None:
    assert commands() - TABLE.keys() == set(), "documented, and exercised by nothing"
    assert TABLE.keys() - commands() == set(), "documented no more"


def test_dags_that_are_named_exist() -> None:
    named = set(re.findall(r"pulsar_[a-z_]+?__(?:east|<cluster>)", "\n".join([prose(), *commands()])))
    assert {name.replace("<cluster>", "east") for name in named} <= set(dags())
    assert {name.removeprefix("pulsar_").partition("__")[0] for name in named} == set(ALL_DAGS)
