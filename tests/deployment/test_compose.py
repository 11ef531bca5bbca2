import json
import re
import stat
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tests.deployment import compose
from tests.deployment.compose import SOURCE, MissingVariableError, Mount, mounts

from pulsar_rebalancer.config.clusters_file import load_clusters
from pulsar_rebalancer.config.field_types import Mode

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


def test_compose_file_follows_the_specification():
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    errors = Draft202012Validator(schema).iter_errors(compose.raw())
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_every_variable_is_in_the_example_and_used():
    assert set(compose.read_env(compose.ENV_EXAMPLE)) == set(compose.variables()) | RUN_BY_COMPOSE_ALONE


def test_empty_values_of_the_example_are_required(env_file):
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


def test_secrets_are_made_afresh_and_for_the_owner_alone(env_file):
    made = compose.read_env(env_file)
    secrets = [made[name] for name, value in compose.read_env(compose.ENV_EXAMPLE).items() if not value]
    assert all(len(secret) >= 32 for secret in secrets)
    assert len(set(secrets)) == len(secrets)
    assert Fernet(made["AIRFLOW_FERNET_KEY"])
    assert made["POSTGRES_PASSWORD"].isalnum()
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o600


def test_secrets_that_are_there_are_not_replaced(env_file):
    before = env_file.read_text()
    done = subprocess.run([SOURCE / "deploy" / "make_env.sh", env_file.parent], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert env_file.read_text() == before


def test_no_secret_is_written_into_the_file():
    written = {
        f"{name}: {key}": str(value)
        for name, service in compose.raw()["services"].items()
        for key, value in service.get("environment", {}).items()
        if SECRET.search(key) and key not in HARMLESS
    }
    assert len(written) > 10
    assert {place for place, value in written.items() if ":?" not in value} == set()


def test_images_are_pinned(services):
    images = {service["image"] for service in services.values()}
    assert all(re.fullmatch(rf"[a-z/-]+:\d+\.\d+(\.\d+)?{DIGEST}", image) for image in images), images
    version = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"]
    assert f"pulsar-rebalancer:{version}" in images


def test_networks_lead_to_those_who_have_to_be_talked_to_alone(document, services):
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


def test_containers_can_do_no_more_than_they_need(services):
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only", False) is not name.startswith("pulsar-"), name
    # Nothing that Airflow writes may be in the image's part of its home.
    for name in services:
        if name.startswith("airflow-"):
            assert services[name]["environment"]["AIRFLOW_CONFIG"].startswith("/tmp/")


def test_spark_is_told_its_secret_by_a_file(services):
    connection = json.loads(services["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"])
    file = connection["extra"]["properties-file"]
    assert file in services["airflow-init"]["command"][-1]
    for name in ("spark-master", "spark-worker"):
        command = services[name]["command"]
        assert command[command.index("--properties-file") + 1] == file
    for name in ("airflow-init", "airflow-scheduler", "spark-master", "spark-worker"):
        mount = Mount("spark-auth", str(Path(file).parent), read_only=name != "airflow-init")
        assert mount in mounts(services[name]), name


def test_ports_are_open_on_loopback_only(services):
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert sorted(published) == ["127.0.0.1:8080:8080", "127.0.0.1:8081:8080"]


def test_data_is_on_named_volumes(document, services):
    used = {mount.source for service in services.values() for mount in mounts(service) if mount.source[0] != "."}
    assert used == set(document["volumes"])
    for name, target in PERSISTENT.items():
        assert target in {mount.target for mount in mounts(services[name]) if mount.source in used}, name


def test_the_rebalancer_acts_on_the_brokers_of_this_file_and_on_no_others(services):
    """Whoever edits .env alone observes nothing and moves nothing."""
    given = services["airflow-scheduler"]["environment"]
    acting = {entry.settings.connection for entry in load_clusters(CLUSTERS) if entry.settings.mode is not Mode.OBSERVE}
    assert acting == {"pulsar_admin_trial"}
    connection = json.loads(given["AIRFLOW_CONN_PULSAR_ADMIN_TRIAL"])
    brokers = {name: service for name, service in services.items() if name.startswith("pulsar-broker-")}
    assert set(connection["host"].split(",")) == set(brokers)
    assert all(str(connection["port"]) in service["expose"] for service in brokers.values())
    assert json.loads(given["AIRFLOW_CONN_PULSAR_ADMIN_DEFAULT"])["extra"] == {"read_only": True}
