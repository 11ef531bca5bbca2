"""A release is built, checked and tagged; its wheels install into a fresh environment, and what Airflow needs loads."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from scripts.release import missing
from tests.include.pulsar_rebalancer.command.test_inspect import Now
from tests.own_git import git_environment

from pulsar_simulator import scenario
from pulsar_simulator.cluster import Cluster, state_of
from pulsar_simulator.serve import serve

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]

ASK = """
import json, sys
from importlib.metadata import entry_points
from pathlib import Path
from pulsar_rebalancer_airflow import example_dags
from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.operators.spark_application import app_path, source_roots
import pulsar_rebalancer_airflow
from pulsar_rebalancer.decide.validation import suites_folder
dags = build_dags()
plugin = next(iter(entry_points(group="airflow.plugins", name="pulsar_rebalancer"))).load()
heavy = [name for name in ("pyspark", "great_expectations", "pandas") if name in sys.modules]
print(json.dumps({
    "dags": sorted(dags),
    "tasks": sorted(dags["pulsar_rebalance__east"].task_ids), "plugin": plugin.name, "heavy": heavy,
    "application": app_path("application"), "application_exists": Path(app_path("application")).is_file(),
    "source_roots": source_roots(),
    "examples": sorted(name for name in vars(example_dags) if name.startswith("example_")),
    "page": (Path(pulsar_rebalancer_airflow.__file__).parent / "templates" / "validation.html").is_file(),
    "suites": sorted(path.name for path in Path(str(suites_folder())).iterdir() if path.suffix == ".json"),
}))
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


UV = Path(sys.executable).parent / "uv"
LOCKED = {"alerts", "extensible", "kubernetes", "postgres"}
"""Extras that `make lock` puts into the lock."""


@dataclass(frozen=True)
class Environment:
    """A fresh environment with the lock, then the wheels alone."""

    folder: Path
    wheel: Path
    core: Path
    simulator: Path

    @property
    def python(self):
        return self.folder / "venv" / "bin" / "python"

    @property
    def metadata(self):
        with ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return HeaderParser().parsestr(archive.read(name).decode())

    def changes(self, extras):
        wanted = f"pulsar-rebalancer[{','.join(sorted(extras))}] @ {self.wheel.as_uri()}"
        found = ("--find-links", self.simulator.parent)
        command = (UV, "pip", "install", "--dry-run", "--offline", *found, "--python", self.python, wanted)
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return re.findall(r"^ ([-+~]) (\S+)", done.stderr, flags=re.MULTILINE)


_MADE = (".run", ".cache", ".*_cache", ".benchmarks", ".hypothesis", ".coverage*", "__pycache__", "build", "dist")
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", *_MADE)
CORE, SIMULATOR = "include/pulsar_rebalancer/pyproject.toml", "include/pulsar_simulator/pyproject.toml"
PEOPLE = 'authors = [{ name = "Somebody", email = "somebody@example.com" }]\n'
ADDRESSES = "\n".join(
    f'{name} = "https://example.com/{name}"' for name in ("Source", "Issues", "Documentation", "Changelog")
)


def released(folder):
    """`make release` in a folder, with the tools of this environment."""
    command = (sys.executable, "scripts/release.py", "--tag")
    return subprocess.run(command, cwd=folder, env=git_environment(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folder of a repository like this one, with what only a publisher knows, after `make release`."""
    folder = tmp_path_factory.mktemp("release") / "repository"
    shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
    for file in (folder / "pyproject.toml", folder / CORE, folder / SIMULATOR):
        project = file.read_text().replace("keywords = ", f"{PEOPLE}keywords = ", 1)
        file.write_text(f"{project}\n[project.urls]\n{ADDRESSES}\n")
    changes = folder / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("(unreleased)", "(2027-01-01)", 1))
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        run("git", *words, cwd=folder, env=git_environment())
    done = released(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_release_is_built_checked_and_tagged(release):
    assert run("git", "tag", "--points-at", "HEAD", cwd=release).split() == ["v0.1.0"]
    assert sorted(path.name for path in (release / "dist").iterdir()) == [
        "pulsar_rebalancer-0.1.0-py3-none-any.whl",
        "pulsar_rebalancer-0.1.0.tar.gz",
        "pulsar_rebalancer_core-0.1.0-py3-none-any.whl",
        "pulsar_rebalancer_simulator-0.1.0-py3-none-any.whl",
    ]


def test_a_release_that_lacks_something_is_refused_and_names_all_of_it(release, tmp_path):
    folder = tmp_path / "repository"
    shutil.copytree(release, folder)
    project = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(project.replace(PEOPLE, "").replace("Source =", "Sauce ="))
    other = (folder / SIMULATOR).read_text()
    (folder / SIMULATOR).write_text(other.replace(PEOPLE, "").replace('version = "0.1.0"', 'version = "0.0.9"'))
    (folder / "CHANGELOG.md").write_text("## 0.1.0 (unreleased)\n")
    shutil.rmtree(folder / "dist")
    done = released(folder)
    assert done.returncode == 1
    assert [line.strip() for line in done.stderr.splitlines()] == [
        "not released:",
        "pyproject.toml lacks authors: a name and an email",
        "pyproject.toml lacks urls.Source: an address",
        f"{SIMULATOR} lacks authors: a name and an email",
        f"{SIMULATOR} has version 0.0.9: all are released as 0.1.0",
        "CHANGELOG.md has no heading '## 0.1.0 (<date>)'",
        "the working tree has changes that are not committed",
        "the tag v0.1.0 exists: raise the version",
    ]
    assert not (folder / "dist").exists()
    assert missing({"maintainers": [{"name": "Nobody"}]})[0] == "authors: a name and an email"


def test_the_source_distribution_is_the_repository(release):
    """So that tests run from it; `make test-sdist` runs some."""
    (archive,) = (release / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert set(run("git", "ls-files", cwd=release).split("\n")) - {""} == inside - {"PKG-INFO"}


@pytest.fixture(scope="module")
def environment(release, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    wheel, core, simulator = sorted((release / "dist").glob("*.whl"))
    made = Environment(folder, wheel, core, simulator)
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    install = (UV, "pip", "install", "--quiet", "--python", made.python)
    locked = (*install, "--require-hashes", "-r", ROOT / "requirements.lock")
    # From what `make setup` has brought: a registry that is asked may have pyspark fetched and built once more.
    if subprocess.run([*locked, "--offline"], check=False).returncode:
        run(*locked)
    run(*install, "--no-deps", wheel, core, simulator)
    return made


@pytest.fixture(scope="module")
def installed(environment):
    folder = environment.folder
    clusters = folder / "clusters.yaml"
    clusters.write_text("clusters: {east: {mode: observe}}")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"AIRFLOW_HOME": str(folder / "airflow"), "AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE": str(clusters)}
    answer = run(environment.python, "-c", ASK, cwd=folder, env=variables).splitlines()[-1]
    return json.loads(answer) | {"folder": str(folder)}


def test_the_lock_fulfils_what_the_wheel_requires(environment):
    assert set(environment.metadata.get_all("Provides-Extra")) >= LOCKED
    assert environment.changes(LOCKED) == []


def test_the_simulated_cluster_is_an_extra_and_not_in_the_product(environment):
    with ZipFile(environment.wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.startswith("pulsar_simulator") or "/embedded/" in name]
    assert environment.changes({"simulator"}) == []
    with ZipFile(environment.simulator) as archive:
        assert "pulsar_simulator/LICENSE" in archive.namelist()
    said = run(environment.python, "-I", "-m", "pulsar_simulator", "--help", cwd=environment.folder)
    assert "--hot-score" in said


def test_both_pysparks_can_only_be_of_one_version(environment):
    """They write into the same folder, and their releases do not come on one day."""
    required = map(Requirement, environment.metadata.get_all("Requires-Dist"))
    pinned = {each.name: str(each.specifier) for each in required if each.name.startswith("pyspark")}
    assert pinned.keys() == {"pyspark", "pyspark-client"}
    (only,) = set(pinned.values())
    assert re.fullmatch(r"==[\d.]+", only)


def test_plugin_and_dag_factory_load(installed):
    assert installed["heavy"] == []
    assert installed["plugin"] == "pulsar_rebalancer"
    assert "pulsar_rebalance__east" in installed["dags"]
    assert {"collect", "validate", "decide", "record", "gate", "unload", "report"} <= set(installed["tasks"])


def test_application_suites_and_template_are_in_the_wheel(installed):
    assert installed["application"].startswith(installed["folder"])
    assert installed["application_exists"]
    assert installed["source_roots"] == []
    assert installed["suites"] == ["brokers.json", "bundles.json", "cluster.json"]
    assert installed["page"]
    assert installed["examples"] == [
        "example_pulsar_act_on_moves",
        "example_pulsar_balance_after_deployment",
        "example_pulsar_own_operator",
    ]


LIGHT = {"pulsar-rebalancer-core", "pyarrow", "numpy"}
"""What does not count in the weight of the environment: both libraries bring compiled code that nothing replaces."""

WEIGH = """
import json
from importlib.metadata import distributions
sizes = {d.name: sum(f.locate().stat().st_size for f in d.files or () if f.locate().exists()) for d in distributions()}
print(json.dumps(sizes))
"""


def test_the_core_wheel_alone_looks_at_a_cluster_within_a_minute(release, tmp_path):
    """In a fresh environment without Airflow, Spark and Java, through HTTP, and moves nothing."""
    (core,) = (release / "dist").glob("pulsar_rebalancer_core-*.whl")
    python = tmp_path / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    install = (UV, "pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements.lock", core)
    if subprocess.run([*install, "--offline"], check=False).returncode:
        run(*install)
    sizes = json.loads(run(python, "-c", WEIGH))
    assert len(sizes) <= 26, sorted(sizes)  # 25, and itself
    assert not {"apache-airflow", "pyspark", "great-expectations", "pandas"} & sizes.keys()
    assert sum(size for name, size in sizes.items() if name not in LIGHT) < 60e6, sizes
    clock = Now()
    cluster = Cluster(scenario.spec(brokers=4, bundles=32), clock)
    clock.advance(300)
    with serve(cluster) as served:
        begun, owners = time.monotonic(), state_of(cluster)["owners"]
        environment = {"PATH": "/nowhere", "PULSAR_TOKEN": served.token}
        command = (python.with_name("pulsar-rebalancer"), "inspect", served.urls[0], "--json")
        seen = json.loads(run(*command, cwd=tmp_path, env=environment))
        assert time.monotonic() - begun < 60
        assert state_of(cluster)["owners"] == owners
    assert {broker["broker"] for broker in seen["brokers"]} == {url.partition("://")[2] for url in served.urls}
    assert seen["if_it_lasts"]["moves"]
