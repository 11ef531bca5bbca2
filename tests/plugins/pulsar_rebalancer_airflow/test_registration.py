import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from airflow._shared.module_loading.file_discovery import find_path_from_directory

from pulsar_rebalancer.command import check_age
from pulsar_rebalancer_airflow.provider import get_provider_info

SOURCE = Path(__file__).parents[3]
PROJECT = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]

ASK = """
import io, json, os, sys
from contextlib import redirect_stdout
from airflow.cli import cli_parser
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.plugins_manager import get_fastapi_plugins, get_plugin_info
from airflow.providers_manager import ProvidersManager
from pulsar_rebalancer_airflow.options import storage_root
manager = ProvidersManager()
manager.initialize_providers_hooks()
hook = manager.hooks["pulsar_admin"]
widgets = {k: v.field for k, v in manager.connection_form_widgets.items() if "pulsar_admin" in k}
heavy = {"great_expectations", "pyspark", "pulsar_rebalancer_airflow.overview.run_answers"} & set(sys.modules)

def cli(*words):
    args = cli_parser.get_parser().parse_args(words)
    with redirect_stdout(io.StringIO()) as said:
        try:
            args.func(args)
        except SystemExit as ended:
            print(ended.code)
    return said.getvalue()

def listed(what):
    return [value for row in json.loads(cli("providers", what, "--output", "json")) for value in row.values()]

os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "True"
print(json.dumps({
    "hook": hook.hook_name, "package": hook.package_name, "widgets": widgets,
    "behaviour": manager.field_behaviours["pulsar_admin"],
    "plugins": [p["name"] for p in get_plugin_info() if p["name"] == "pulsar_rebalancer"],
    "apps": [app["url_prefix"] for app in get_fastapi_plugins()[0]],
    "providers": listed("list"), "links": listed("links"), "notifications": listed("notifications"),
    "options": cli("config", "list", "--section", "pulsar_rebalancer", "--show-values", "--color", "off"),
    "command": cli("pulsar-rebalancer", *sys.argv[1:]),
    "storage_root": storage_root(), "heavy": sorted(heavy),
    "bundles": list(DagBundlesManager()._bundle_config),
}))
"""
INFO = get_provider_info()


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What Airflow knows in a process of its own, with the metadata that an installed wheel has."""
    site = tmp_path_factory.mktemp("site")
    info = site / f"pulsar_rebalancer-{PROJECT['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: pulsar-rebalancer\nVersion: {PROJECT['version']}\n")
    (info / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "\n".join(f"{name} = {target}" for name, target in points.items())
            for group, points in PROJECT["entry-points"].items()
        )
    )
    (site / "airflow.cfg").write_text("[pulsar_rebalancer]\nstorage_root = s3://bucket/runs\n")
    paths = [site, *(SOURCE / part for part in ("include", "plugins", "spark_apps"))]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "AIRFLOW_CONFIG": str(site / "airflow.cfg"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__PULSAR_REBALANCER__STRATEGIES": "my_package:shed",
    }
    check = ("check-age", "--root", str(site), "--cluster", "east", "--max-age-seconds", "300")
    command = [sys.executable, "-c", ASK, *check]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_connection_type_has_a_form(registered: Mapping[str, Any]) -> None:
    from pulsar_rebalancer.pulsar.connection import EXTRAS

    assert registered["hook"] == "Apache Pulsar admin"
    assert registered["package"] == PROJECT["name"]
    assert set(registered["widgets"]) == {f"extra__pulsar_admin__{name}" for name in EXTRAS}
    assert registered["behaviour"]["relabeling"] == {"schema": "Scheme", "password": "Token"}


def test_airflow_lists_the_options(registered: Mapping[str, Any]) -> None:
    config = ConfigParser(interpolation=None)
    config.read_string(registered["options"])
    home = os.environ["AIRFLOW_HOME"]
    assert dict(config["pulsar_rebalancer"]) == {
        "clusters_file": f"{home}/config/pulsar_clusters.yaml",
        "storage_root": "s3://bucket/runs",
        "spark_archive": "",
        "strategies": "my_package:shed",
    }
    assert registered["storage_root"] == "s3://bucket/runs"


def test_airflow_has_the_command_with_its_exit_codes(registered: Mapping[str, Any]) -> None:
    said, _, code = registered["command"].strip().rpartition("\n")
    assert said == "CRITICAL - cluster east: last outcome: never; last committed decision: never; limit: 300 s"
    assert int(code) == check_age.CRITICAL


def test_airflow_lists_provider_links_and_notifier(registered: Mapping[str, Any]) -> None:
    assert {PROJECT["name"], PROJECT["version"]} <= set(registered["providers"])
    assert set(INFO["extra-links"]) <= set(registered["links"])
    assert set(INFO["notifications"]) <= set(registered["notifications"])
    assert "/pulsar_rebalancer" in registered["apps"]


def test_plugin_loads_nothing_heavy(registered: Mapping[str, Any]) -> None:
    assert registered["heavy"] == []


def test_a_plugins_folder_executes_nothing() -> None:
    """Airflow would run every module below a plugins folder under its bare name."""
    assert list(find_path_from_directory(str(SOURCE / "plugins"), ".airflowignore")) == []
