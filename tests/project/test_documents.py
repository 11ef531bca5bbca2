import tests.airflow_home  # noqa: F401 - before anything of Airflow
from fastapi.routing import APIRoute

# isort: split

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from airflow.api_fastapi.core_api.routes.public.asset_state_store import asset_state_store_router
from tests.project.documentation import PAGES, ROOT, blocks, prose, spans

from pulsar_rebalancer.config.clusters_file import load_clusters
from pulsar_rebalancer.config.field_types import Action, Placement, Strategy
from pulsar_rebalancer.orders.in_force import ACTIONS
from pulsar_rebalancer.pulsar import AdminConnection
from pulsar_rebalancer.pulsar.connection import EXTRAS

OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_yaml_blocks_are_clusters_files(tmp_path: Path) -> None:
    # Those of kubernetes.md are objects of Kubernetes: tests/deployment/test_kubernetes.py.
    found = [yaml.safe_load(each.body) for each in blocks() if each.language == "yaml" and each.page != "kubernetes.md"]
    assert len(found) >= 2
    for document in found:
        file = tmp_path / "clusters.yaml"
        file.write_text(yaml.safe_dump({"clusters": {"east": None}} | document))
        assert [entry.error for entry in load_clusters(file)] == [""] * len(document.get("clusters") or {"east": None})


def test_extras_of_a_connection_are_listed() -> None:
    assert sorted(first_column("### The connection's extras")) == sorted(EXTRAS)
    default = {field.name: field.default for field in fields(AdminConnection)}
    text = "| `answer_timeout_seconds` | {read_timeout_s:g} | maximum seconds for a complete answer; fixed limits are "
    text += "{connect_timeout_s:g} s to connect and {unload_timeout_s:g} s for an unload |"
    assert text.format(**default) in OPERATIONS


def first_column(heading: str, page: str = "operations") -> list[str]:
    """What is between backticks in the first column of the table under a heading of a page."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(f"{heading}\n")[2].partition("\n#")[0]
    return [
        name for row in re.findall(r"^\|([^|]+)\|", section, flags=re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]


@pytest.mark.parametrize(
    ("page", "heading", "members"),
    [
        ("control", "## Orders", tuple(ACTIONS)),
        ("strategies", "## Shedders", tuple(Strategy)),
        ("strategies", "## Placement", tuple(Placement)),
        ("control", "## Make a plan", tuple(Action)),
    ],
)
def test_every_member_has_a_row(page: str, heading: str, members: tuple[str, ...]) -> None:
    assert set(first_column(heading, page)) >= {*members}


def test_files_that_are_named_exist() -> None:
    tops = {path.name for path in ROOT.iterdir() if path.is_dir()}
    named = {span for span in spans() if re.fullmatch(r"[\w./-]+", span) and span.split("/")[0] in tops and "/" in span}
    assert named
    # A run folder has parts that are called like folders of the repository; other files are made by make.
    elsewhere = ("plan/", "state/", ".cache/", ".run/", "build/")
    assert {name for name in named if not (ROOT / name).exists() and not name.startswith(elsewhere)} == set()


def test_modules_and_names_of_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    wings = [ROOT, *(ROOT / wing for wing in ("include/pulsar_rebalancer", "plugins/pulsar_rebalancer_airflow"))]
    wings.append(ROOT / "spark_apps" / "pulsar_rebalancer_spark")
    named = re.findall(r"`([\w/]+\.py|[\w/]+/)(?:::(\w+))?`", text)
    assert len(named) > 50
    gone = {path for path, _ in named if not any((wing / path).exists() for wing in wings)}
    for path, name in named:
        places = [wing / path for wing in wings if name and (wing / path).exists()]
        files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))]
        defined = re.compile(rf"\b(class|def) {name}\b|^ *{name}\b", re.MULTILINE)
        if name and not any(defined.search(file.read_text(encoding="utf-8")) for file in files):
            gone.add(f"{path}::{name}")
    assert gone == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, _, anchor in re.findall(r"(?:\]\(|src=\"|srcset=\")(?!http)([^)#\"]*)(#([^)\"]+))?", text):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them, and those that are set."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def test_the_state_of_a_removed_cluster_can_be_cleared() -> None:
    assert "`DELETE /api/v2/assets/<id>/state-store`" in prose()
    found = [route for route in asset_state_store_router.routes if isinstance(route, APIRoute)]
    routes = {(method, route.path) for route in found for method in route.methods}
    assert ("DELETE", "/assets/{asset_id}/state-store") in routes
