"""The wheel installs into a fresh environment, and what Airflow needs of it loads there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ASK = """
import json, sys
from importlib.metadata import entry_points
from pathlib import Path
from pulsar_rebalancer_airflow.dag_factory import build_dags
from pulsar_rebalancer_airflow.operators.decide import application, source_roots
from pulsar_rebalancer_airflow import validation_page
from pulsar_rebalancer_airflow.validation import suites_folder
dags = build_dags()
plugin = next(iter(entry_points(group="airflow.plugins", name="pulsar_rebalancer"))).load()
heavy = [name for name in ("pyspark", "great_expectations", "pandas") if name in sys.modules]
print(json.dumps({
    "dags": sorted(dags),
    "tasks": sorted(dags["pulsar_rebalance__east"].task_ids), "plugin": plugin.name, "heavy": heavy,
    "application": application(), "application_exists": Path(application()).is_file(), "source_roots": source_roots(),
    "page": (Path(validation_page.__file__).parent / "templates" / "validation.html").is_file(),
    "suites": sorted(path.name for path in Path(str(suites_folder())).iterdir() if path.suffix == ".json"),
}))
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What a fresh environment with the lock and the wheel answers."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).parent / "uv"
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    run(uv, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", ROOT / "requirements.lock")
    run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    clusters = folder / "clusters.yaml"
    clusters.write_text("clusters: {east: {mode: observe}}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"AIRFLOW_HOME": str(folder / "airflow"), "PULSAR_REBALANCER_CLUSTERS": str(clusters)}
    return json.loads(run(python, "-c", ASK, cwd=folder, env=environment).splitlines()[-1]) | {"folder": str(folder)}


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
