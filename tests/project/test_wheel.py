"""The wheel installs into a fresh environment, and what Airflow needs of it loads there."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]

ASK = """
import json, sys
from importlib.metadata import entry_points
from pathlib import Path
from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.operators.spark_application import path_of, source_roots
from pulsar_rebalancer_airflow.validation import page
from pulsar_rebalancer_airflow.validation.suites import suites_folder
dags = build_dags()
plugin = next(iter(entry_points(group="airflow.plugins", name="pulsar_rebalancer"))).load()
heavy = [name for name in ("pyspark", "great_expectations", "pandas") if name in sys.modules]
print(json.dumps({
    "dags": sorted(dags),
    "tasks": sorted(dags["pulsar_rebalance__east"].task_ids), "plugin": plugin.name, "heavy": heavy,
    "application": path_of("application"), "application_exists": Path(path_of("application")).is_file(),
    "source_roots": source_roots(),
    "page": (Path(page.__file__).parents[1] / "templates" / "validation.html").is_file(),
    "suites": sorted(path.name for path in Path(str(suites_folder())).iterdir() if path.suffix == ".json"),
}))
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


UV = Path(sys.executable).parent / "uv"
LOCKED = {"alerts", "extensible", "postgres"}
"""Extras that `make lock` puts into the lock."""


@dataclass(frozen=True)
class Environment:
    """A fresh environment with the lock, then the wheel alone.

    Attributes:
        folder: where it is.
        wheel: the file that was installed.
    """

    folder: Path
    wheel: Path

    @property
    def python(self):
        return self.folder / "venv" / "bin" / "python"

    @property
    def metadata(self):
        with ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return HeaderParser().parsestr(archive.read(name).decode())

    def changes(self, extras):
        """What installing the wheel with extras, and all that they require, would change."""
        wanted = f"pulsar-rebalancer[{','.join(sorted(extras))}] @ {self.wheel.as_uri()}"
        command = (UV, "pip", "install", "--dry-run", "--offline", "--python", self.python, wanted)
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return re.findall(r"^ ([-+~]) (\S+)", done.stderr, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    made = Environment(folder, wheel)
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    install = (UV, "pip", "install", "--quiet", "--python", made.python)
    locked = (*install, "--require-hashes", "-r", ROOT / "requirements.lock")
    # From what `make setup` has brought: a registry that is asked may have pyspark fetched and built once more.
    if subprocess.run([*locked, "--offline"], check=False).returncode:
        run(*locked)
    run(*install, "--no-deps", wheel)
    return made


@pytest.fixture(scope="module")
def installed(environment):
    """What it answers."""
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


def test_both_pysparks_can_only_be_of_one_version(environment):
    """They write into the same folder, and their releases do not come on one day."""
    required = map(Requirement, environment.metadata.get_all("Requires-Dist"))
    pinned = {each.name: str(each.specifier) for each in required if each.name.startswith("pyspark")}
    assert pinned.keys() == {"pyspark", "pyspark-client"}
    (only,) = set(pinned.values())
    assert re.fullmatch(r"==[\d.]+", only)


def test_plugin_and_dag_factory_load(installed):
    assert installed["plugin"] == "pulsar_rebalancer"
    assert "pulsar_rebalance__east" in installed["dags"]
    assert {"collect", "validate", "decide", "record", "gate", "unload", "report"} <= set(installed["tasks"])


def test_nothing_heavy_is_loaded(installed):
    assert installed["heavy"] == []


def test_application_suites_and_template_are_in_the_wheel(installed):
    assert installed["application"].startswith(installed["folder"])
    assert installed["application_exists"]
    assert installed["source_roots"] == []
    assert installed["suites"] == ["brokers.json", "bundles.json", "cluster.json"]
    assert installed["page"]
