from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import tomllib
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tests.deployment import compose
from tests.deployment.compose import SOURCE, MissingVariableError, Mount, mounts

from pulsar_rebalancer.config.clusters_file import load_clusters
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.provider import get_provider_info

ONCE = {"airflow-init", "pulsar-init"}
RUN_BY_COMPOSE_ALONE = {"COMPOSE_PROFILES"}
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|FERNET|_CONN(_|$)", re.IGNORECASE)
# Names that only look like secrets: a path, and addresses without credentials.
HARMLESS = {
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE",
    "AIRFLOW_CONN_SPARK_DEFAULT",
    "AIRFLOW_CONN_PULSAR_ADMIN_TRIAL",
}
DIGEST = "(@sha256:[0-9a-f]{64})?"
CLUSTERS = SOURCE / "deploy" / "clusters" / "clusters.yaml"
PERSISTENT = {
    "postgres": "/var/lib/postgresql/data",
    "airflow-apiserver": "/opt/airflow/auth",
    "airflow-scheduler": "/opt/airflow/storage",
    "pulsar-zookeeper": "/pulsar/data",
    "pulsar-bookie": "/pulsar/data",
}


@pytest.fixture(scope="module")
def document(env_file: Path) -> dict[str, Any]:
    return compose.load(compose.read_env(env_file))


@pytest.fixture(scope="module")
def services(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = document["services"]
    return found


def test_it_follows_the_compose_specification() -> None:
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    errors = Draft202012Validator(schema).iter_errors(compose.raw())
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_every_variable_is_in_the_example_and_used() -> None:
    assert set(compose.read_env(compose.ENV_EXAMPLE)) == set(compose.variables()) | RUN_BY_COMPOSE_ALONE


def test_what_is_empty_in_the_example_is_required_and_has_no_default(env_file: Path) -> None:
    given = compose.read_env(env_file)
    empty = {name for name, value in compose.read_env(compose.ENV_EXAMPLE).items() if not value}
    assert empty == {
        "POSTGRES_PASSWORD",
        "AIRFLOW_ADMIN_PASSWORD",
        "AIRFLOW_FERNET_KEY",
        "AIRFLOW_JWT_SECRET",
        "AIRFLOW_API_SECRET_KEY",
        "SPARK_AUTH_SECRET",
    }
    for name in empty:
        assert compose.variables()[name] == {":?"}
        with pytest.raises(MissingVariableError, match=f"{name}: run deploy/make_env.sh"):
            compose.load(given | {name: ""})


def test_secrets_are_made_afresh_and_for_the_owner_alone(env_file: Path) -> None:
    made = compose.read_env(env_file)
    secrets = [made[name] for name, value in compose.read_env(compose.ENV_EXAMPLE).items() if not value]
    assert all(len(secret) >= 32 for secret in secrets)
    assert len(set(secrets)) == len(secrets)
    assert Fernet(made["AIRFLOW_FERNET_KEY"])
    assert made["POSTGRES_PASSWORD"].isalnum()
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o600


def test_secrets_that_are_there_are_not_replaced(env_file: Path) -> None:
    before = env_file.read_text()
    done = subprocess.run([SOURCE / "deploy" / "make_env.sh", env_file.parent], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert env_file.read_text() == before


def test_no_secret_is_written_into_the_file() -> None:
    written = {
        f"{name}: {key}": str(value)
        for name, service in compose.raw()["services"].items()
        for key, value in service.get("environment", {}).items()
        if SECRET.search(key) and key not in HARMLESS
    }
    assert len(written) > 10
    assert {place for place, value in written.items() if ":?" not in value} == set()


def test_images_are_pinned(services: dict[str, dict[str, Any]]) -> None:
    images = {service["image"] for service in services.values()}
    assert all(re.fullmatch(rf"[a-z/-]+:\d+\.\d+(\.\d+)?{DIGEST}", image) for image in images), images
    version = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"]
    assert f"pulsar-rebalancer:{version}" in images


def test_digests_of_the_registry_are_written_after_the_versions(tmp_path: Path) -> None:
    """Again after a version has changed; a registry that does not answer changes nothing."""
    files = ("Dockerfile", "docker-compose.yaml", "deploy/kubernetes/manifests/metrics.yaml")
    (tmp_path / files[-1]).parent.mkdir(parents=True)
    for file in files:
        (tmp_path / file).write_text(re.sub("@sha256:[0-9a-f]+", "", (SOURCE / file).read_text()))
    before = {file: (tmp_path / file).read_text() for file in files}
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"

    def pin(answer: str) -> int:
        docker.write_text(f"#!/bin/sh\n[ \"$1 $2 $3\" = 'buildx imagetools inspect' ] || exit 9\n{answer}\n")
        docker.chmod(0o700)
        environment = os.environ | {"PATH": f"{docker.parent}:{os.environ['PATH']}"}
        return subprocess.run([SOURCE / "deploy" / "pin_images.sh", tmp_path], env=environment).returncode

    assert pin("exit 1") != 0
    assert pin("echo sha256:short") != 0
    assert {name: (tmp_path / name).read_text() for name in before} == before
    for digest in ("a" * 64, "b" * 64):
        assert pin(f"echo sha256:{digest}") == 0
        images = re.findall(
            r"^(?:FROM| +image:) (\S+)", "".join((tmp_path / n).read_text() for n in before), re.MULTILINE
        )
        assert len(images) == 6
        unpinned = [image for image in images if not image.endswith(f"@sha256:{digest}")]
        assert [image.partition(":")[0] for image in unpinned] == ["pulsar-rebalancer"]
        assert {n: (tmp_path / n).read_text().replace(f"@sha256:{digest}", "") for n in before} == before


def test_airflow_and_spark_are_one_image_and_one_user(services: dict[str, dict[str, Any]]) -> None:
    ours = [service for name, service in services.items() if name.startswith(("airflow-", "spark-"))]
    assert len(ours) == 6
    assert {(service["image"], service["build"]) for service in ours} == {(ours[0]["image"], ".")}
    assert not any("user" in service for service in ours)


def test_what_runs_on_is_checked_and_started_again(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if name in ONCE:
            assert service["restart"] == "no", name
            assert "healthcheck" not in service, name
        else:
            assert service["restart"] == "unless-stopped", name
            assert set(service["healthcheck"]) == {"test", "interval", "timeout", "retries", "start_period"}, name


def test_every_start_waits_for_what_it_needs(services: dict[str, dict[str, Any]]) -> None:
    awaited = set()
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            awaited.add(needed)
            expected = "service_completed_successfully" if needed in ONCE else "service_healthy"
            assert how == {"condition": expected}, (name, needed)
            # Without the profile the file must still be whole.
            assert set(services[needed].get("profiles", ())) <= set(service.get("profiles", ())), (name, needed)
    assert awaited >= ONCE


def test_networks_lead_to_those_who_have_to_be_talked_to_alone(
    document: dict[str, Any], services: dict[str, dict[str, Any]]
) -> None:
    pulsar = {name for name in services if name.startswith("pulsar-")}
    talking = {
        "airflow": {"airflow-apiserver", "airflow-scheduler"},
        "database": {"postgres", *(name for name in services if name.startswith("airflow-"))},
        "pulsar": {"airflow-scheduler", *pulsar},
        "spark": {"airflow-scheduler", "spark-master", "spark-worker"},
    }
    found = {network: {name for name in services if network in services[name]["networks"]} for network in talking}
    assert found == talking
    assert set(document["networks"]) == set(talking)
    open_to_the_world = {name for name, network in document["networks"].items() if not (network or {}).get("internal")}
    published = {network for service in services.values() if "ports" in service for network in service["networks"]}
    assert open_to_the_world == published - {"database"} == {"airflow", "spark"}


def test_spark_drivers_listen_on_the_network_of_spark(services: dict[str, dict[str, Any]]) -> None:
    scheduler = services["airflow-scheduler"]
    aliases = {name: network["aliases"] for name, network in scheduler["networks"].items() if network}
    assert aliases == {"spark": [scheduler["environment"]["SPARK_LOCAL_IP"]]}


def test_containers_can_do_no_more_than_they_need(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only", False) is not name.startswith("pulsar-"), name
    # Nothing that Airflow writes may be in the image's part of its home.
    for name in services:
        if name.startswith("airflow-"):
            assert services[name]["environment"]["AIRFLOW_CONFIG"].startswith("/tmp/")


def test_spark_is_told_its_secret_by_a_file(services: dict[str, dict[str, Any]]) -> None:
    connection = json.loads(services["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"])
    file = connection["extra"]["properties-file"]
    assert file in services["airflow-init"]["command"][-1]
    for name in ("spark-master", "spark-worker"):
        command = services[name]["command"]
        assert command[command.index("--properties-file") + 1] == file
    for name in ("airflow-init", "airflow-scheduler", "spark-master", "spark-worker"):
        mount = Mount("spark-auth", str(Path(file).parent), read_only=name != "airflow-init")
        assert mount in mounts(services[name]), name


def test_ports_are_open_on_loopback_only(services: dict[str, dict[str, Any]]) -> None:
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert sorted(published) == ["127.0.0.1:8080:8080", "127.0.0.1:8081:8080"]


def test_what_must_survive_is_on_named_volumes(document: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    used = {mount.source for service in services.values() for mount in mounts(service) if mount.source[0] != "."}
    assert used == set(document["volumes"])
    for name, target in PERSISTENT.items():
        assert target in {mount.target for mount in mounts(services[name]) if mount.source in used}, name


def test_the_storage_root_is_one_volume_under_one_path(services: dict[str, dict[str, Any]]) -> None:
    root = services["airflow-scheduler"]["environment"]["AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT"]
    for name in ("airflow-scheduler", "airflow-apiserver", "spark-worker"):
        assert Mount("rebalancer-storage", root, read_only=name != "airflow-scheduler") in mounts(services[name]), name


def test_spark_workers_may_write_what_executors_write(services: dict[str, dict[str, Any]]) -> None:
    """Means of bundles and the progress of replays; the folders are made before the worker starts."""
    root, worker = (
        services["airflow-scheduler"]["environment"]["AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT"],
        services["spark-worker"],
    )
    written = {mount for mount in mounts(worker) if mount.source == "rebalancer-storage" and not mount.read_only}
    of_clusters = [ClusterStorage(root, entry.name) for entry in load_clusters(CLUSTERS)]
    expected = {Path(place.uri) for storage in of_clusters for place in (storage.state, storage.replays)}
    assert written == {
        Mount("rebalancer-storage", str(place), subpath=str(place.relative_to(root))) for place in expected
    }
    made = services["airflow-init"]["command"][-1].partition("mkdir -p ")[2].split()
    assert {Path(place) for place in made} == expected


def test_the_clusters_file_is_whole_and_its_connections_are_there(services: dict[str, dict[str, Any]]) -> None:
    scheduler = services["airflow-scheduler"]
    folder = {mount.target: mount.source for mount in mounts(scheduler)}
    inside = Path(scheduler["environment"]["AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE"])
    entries = load_clusters(SOURCE / folder[str(inside.parent)] / inside.name)
    assert [(entry.name, entry.error) for entry in entries] == [("local", "")]
    for entry in entries:
        for connection in (entry.settings.connection, entry.settings.spark_connection):
            assert f"AIRFLOW_CONN_{connection.upper()}" in scheduler["environment"]


def test_the_rebalancer_acts_on_the_brokers_of_this_file_and_on_no_others(services: dict[str, dict[str, Any]]) -> None:
    """Whoever edits .env alone observes nothing and moves nothing."""
    given = services["airflow-scheduler"]["environment"]
    acting = {entry.settings.connection for entry in load_clusters(CLUSTERS) if entry.settings.mode is not Mode.OBSERVE}
    assert acting == {"pulsar_admin_trial"}
    connection = json.loads(given["AIRFLOW_CONN_PULSAR_ADMIN_TRIAL"])
    brokers = {name: service for name, service in services.items() if name.startswith("pulsar-broker-")}
    assert set(connection["host"].split(",")) == set(brokers)
    assert all(str(connection["port"]) in service["expose"] for service in brokers.values())
    assert json.loads(given["AIRFLOW_CONN_PULSAR_ADMIN_DEFAULT"])["extra"] == {"read_only": True}


def test_the_entry_for_own_brokers_observes_until_it_is_told_otherwise(tmp_path: Path) -> None:
    text = CLUSTERS.read_text()
    commented = text[text.index("  # east:") :].replace("  # ", "  ")
    (tmp_path / "clusters.yaml").write_text(f"clusters:\n{commented}")
    (entry,) = load_clusters(tmp_path / "clusters.yaml")
    assert (entry.name, entry.error, entry.settings.mode) == ("east", "", Mode.OBSERVE)
    assert entry.settings.max_bundles_per_run
    assert entry.settings.max_bundles_per_broker


def test_brokers_leave_balancing_to_the_rebalancer(services: dict[str, dict[str, Any]]) -> None:
    brokers = {name: service for name, service in services.items() if name.startswith("pulsar-broker-")}
    assert len(brokers) == 3
    for name, service in brokers.items():
        assert service["environment"]["loadBalancerSheddingEnabled"] == "false"
        assert service["environment"]["loadManagerClassName"].endswith(".ModularLoadManagerImpl")
        assert service["environment"]["advertisedAddress"] == name


def test_every_airflow_setting_exists(services: dict[str, dict[str, Any]]) -> None:
    spec = find_spec("airflow")
    assert spec is not None
    assert spec.submodule_search_locations
    known = yaml.safe_load((Path(spec.submodule_search_locations[0]) / "config_templates" / "config.yml").read_text())
    known |= get_provider_info()["config"]
    given = {key for service in services.values() for key in service.get("environment", {})}
    parts = [key.removeprefix("AIRFLOW__").lower().split("__") for key in given if key.startswith("AIRFLOW__")]
    assert len(parts) > 15
    assert [f"{section}.{option}" for section, option in parts if option not in known[section]["options"]] == []
