"""How Airflow finds what is in the package: entry points for the plugin and the connection type, nothing by folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow._shared.module_loading.file_discovery import find_path_from_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = Path(__file__).parents[3]
PROJECT = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]

ASK = """
import json, sys
from airflow.providers_manager import ProvidersManager
from airflow.plugins_manager import get_fastapi_plugins, get_operator_extra_links, get_plugin_info
manager = ProvidersManager()
manager.initialize_providers_hooks()
hook = manager.hooks["pulsar_admin"]
widgets = {k: v.field for k, v in manager.connection_form_widgets.items() if "pulsar_admin" in k}
print(json.dumps({
    "hook": hook.hook_name, "package": hook.package_name, "widgets": widgets,
    "behaviour": manager.field_behaviours["pulsar_admin"],
    "plugins": [p["name"] for p in get_plugin_info() if p["name"] == "pulsar_rebalancer"],
    "links": [link.name for link in get_operator_extra_links()],
    "apps": [app["url_prefix"] for app in get_fastapi_plugins()[0]],
    "heavy": sorted(
        {"great_expectations", "pyspark", "pulsar_rebalancer_airflow.validation.validation_web"} & set(sys.modules)
    ),
}))
"""


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
    paths = [site, *(SOURCE / part for part in ("include", "plugins", "spark_apps"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_connection_type_has_a_form(registered: Mapping[str, Any]) -> None:
    from pulsar_rebalancer_airflow.hooks.pulsar_admin import EXTRAS

    assert registered["hook"] == "Apache Pulsar admin"
    assert registered["package"] == PROJECT["name"]
    assert set(registered["widgets"]) == {f"extra__pulsar_admin__{name}" for name in EXTRAS}
    assert registered["behaviour"]["relabeling"] == {"schema": "Scheme", "password": "Token"}


def test_the_plugin_is_registered_once(registered: Mapping[str, Any]) -> None:
    assert registered["plugins"] == ["pulsar_rebalancer"]


def test_the_link_to_validation_results_and_its_pages_are_registered(registered: Mapping[str, Any]) -> None:
    assert "Validation result" in registered["links"]
    assert "/pulsar_rebalancer" in registered["apps"]


def test_nothing_heavy_is_loaded_with_the_plugin(registered: Mapping[str, Any]) -> None:
    assert registered["heavy"] == []


def test_a_plugins_folder_executes_nothing() -> None:
    """Airflow would run every module below a plugins folder under its bare name."""
    assert list(find_path_from_directory(str(SOURCE / "plugins"), ".airflowignore")) == []
