"""The manifests follow the schemas of Kubernetes, and say the same as docker-compose.yaml and the Dockerfile."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import ValidationError
from tests.deployment import compose, kubernetes
from tests.deployment.compose import Mount, mounts
from tests.deployment.kubernetes import NAMESPACE, VALUES, Document, containers, objects
from tests.project.documentation import blocks, commands_in_blocks

from pulsar_rebalancer.config.clusters_file import load_clusters
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer_airflow.hooks.pulsar_admin import EXTRAS

OBJECTS = objects()
PODS = kubernetes.pods()
SERVICES: dict[str, Document] = compose.raw()["services"]
PARTS = ("airflow-apiserver", "airflow-scheduler", "airflow-dag-processor")
# Compose has an address of its own for each, and PostgreSQL's password in it.
DIFFERENT = {"AIRFLOW__API__BASE_URL", "AIRFLOW_CONN_SPARK_DEFAULT"}
METRICS = {
    "AIRFLOW__METRICS__OTEL_ON",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
}
VOLUMES = {"airflow-auth": "auth", "airflow-logs": "logs", "rebalancer-storage": "storage", "spark-auth": "spark"}
HARDENED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
SECRETS = {
    words[4]: words
    for words in (command.split() for command in commands_in_blocks("kubernetes.md"))
    if words[:4] == ["kubectl", "create", "secret", "generic"]
}


def values() -> Document:
    document: Document = yaml.safe_load(VALUES.read_text())
    return document


def main(name: str) -> Document:
    container: Document = PODS[name]["containers"][0]
    return container


def named(document: Any, key: str) -> set[str]:
    """Every text below this key, at any depth; of an object its name."""
    if isinstance(document, list):
        return set().union(*(named(each, key) for each in document))
    if not isinstance(document, dict):
        return set()
    here = document.get(key)
    name = here.get("name") if isinstance(here, dict) else here
    found = {name} if isinstance(name, str) else set()
    return found.union(*(named(each, key) for each in document.values()))


@pytest.mark.parametrize("document", OBJECTS.values(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_every_object_follows_its_schema(document: Document) -> None:
    kubernetes.check(document)
    assert document["metadata"].get("namespace", NAMESPACE) == NAMESPACE


def test_the_template_of_executors_and_what_is_documented_follow_theirs() -> None:
    kubernetes.check(kubernetes.executor_template())
    documented = [block.body for block in blocks() if (block.page, block.language) == ("kubernetes.md", "yaml")]
    assert documented
    for body in documented:
        for document in yaml.safe_load_all(body):
            kubernetes.check(document)


@pytest.mark.parametrize("place", [("spec", "replica"), ("spec", "template", "spec", "containers", 0, "livenesProbe")])
def test_a_misspelled_key_fails(place: tuple[Any, ...]) -> None:
    document = inner = copy.deepcopy(OBJECTS["Deployment", "airflow-apiserver"])
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = {}

    with pytest.raises(ValidationError, match=place[-1]):
        kubernetes.check(document)


def test_airflow_runs_the_image_and_the_commands_of_the_compose_file() -> None:
    ours = SERVICES["airflow-scheduler"]["image"]
    images = {container["image"] for name in (*PARTS, "airflow-migrate") for container in containers(PODS[name])}
    assert images == {ours}
    assert f"spark.kubernetes.container.image {ours}\n" in kubernetes.config_map("spark")["spark.properties"]
    assert f"{values()['defaultAirflowRepository']}:{values()['defaultAirflowTag']}" == ours
    assert {name: main(name)["args"] for name in PARTS} == {name: SERVICES[name]["command"] for name in PARTS}
    assert " ".join(main("airflow-migrate")["args"]) in SERVICES["airflow-init"]["command"][-1].splitlines()
    for name in PARTS:
        assert "check-migrations" in " ".join(PODS[name]["initContainers"][0]["args"])


def test_probes_ask_what_health_checks_ask() -> None:
    for name in PARTS:
        probe, test = main(name)["livenessProbe"], SERVICES[name]["healthcheck"]["test"]
        if "httpGet" in probe:
            assert test[-1] == f"http://localhost:{probe['httpGet']['port']}{probe['httpGet']['path']}"
            assert main(name)["readinessProbe"]["httpGet"] == main(name)["startupProbe"]["httpGet"] == probe["httpGet"]
        else:
            assert test == ["CMD-SHELL", probe["exec"]["command"][-1].replace("$", "$$")]


def test_airflow_has_the_variables_of_the_compose_file() -> None:
    theirs = SERVICES["airflow-init"]["environment"] | SERVICES["airflow-scheduler"]["environment"]
    ours, secret = kubernetes.config_map("airflow"), compose.read_env(kubernetes.FOLDER / ".env.example")
    own = {name for name in theirs if name.startswith(("AIRFLOW_CONN_PULSAR", "SPARK_")) or "__" not in name}
    wanted = set(theirs) - own | {"AIRFLOW_CONFIG", "AIRFLOW_CONN_SPARK_DEFAULT"} | METRICS
    assert set(ours) | set(secret) == wanted
    assert set(ours) & set(secret) == set()
    shared = set(ours) - METRICS - DIFFERENT
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
    assert {name for name in secret if ":?" not in theirs[name]} == set()
    for name in PARTS:
        for container in containers(PODS[name]):
            assert container["envFrom"][:2] == [
                {"configMapRef": {"name": "airflow"}},
                {"secretRef": {"name": "airflow"}},
            ]


def test_paths_are_those_of_the_compose_file() -> None:
    for name in PARTS:
        theirs = {
            Mount(VOLUMES.get(mount.source, Path(mount.source).name), mount.target, mount.read_only)
            for mount in mounts(SERVICES[name])
        }
        ours = {
            Mount(mount["name"], mount["mountPath"], mount.get("readOnly", False))
            for mount in main(name)["volumeMounts"]
        }
        assert ours - {Mount("tmp", "/tmp")} == theirs, name
    root = kubernetes.config_map("airflow")["AIRFLOW__PULSAR_REBALANCER__STORAGE_ROOT"]
    assert {"name": "storage", "mountPath": root} in main("executor")["volumeMounts"]


def test_what_is_named_is_there() -> None:
    documents = [*OBJECTS.values(), kubernetes.executor_template(), values()]
    for key, kind in (("configMap", "ConfigMap"), ("configMapRef", "ConfigMap"), ("configMapKeyRef", "ConfigMap")):
        assert {(kind, name) for name in named(documents, key)} <= OBJECTS.keys()
    claims = named(documents, "claimName") | {values()["logs"]["persistence"]["existingClaim"]}
    assert {("PersistentVolumeClaim", name) for name in claims} <= OBJECTS.keys()
    accounts = named(documents, "serviceAccountName") | {values()["scheduler"]["serviceAccount"]["name"]}
    assert {("ServiceAccount", name) for name in accounts} <= OBJECTS.keys()
    secrets = named(documents, "secretName") | named(documents, "secretRef") | named(documents, "secretKeyRef")
    assert secrets == set(SECRETS)
    for name, document in OBJECTS.items():
        if name[0] == "Service":
            assert document["spec"]["selector"] == OBJECTS["Deployment", name[1]]["spec"]["selector"]["matchLabels"]
            ports = {port["containerPort"] for port in main(name[1])["ports"]}
            assert {port["port"] for port in document["spec"]["ports"]} <= ports


def test_no_secret_is_in_a_file() -> None:
    assert "Secret" not in {kind for kind, _ in OBJECTS}
    # From a file, not from a command line that a process list and a history show.
    assert {words[7] for words in SECRETS.values()} <= {"--from-file", "--from-env-file"}


def test_its_secrets_are_made_like_those_of_the_compose_file(tmp_path: Path) -> None:
    example = kubernetes.FOLDER / ".env.example"
    (tmp_path / ".env.example").write_text(example.read_text())
    subprocess.run([compose.SOURCE / "deploy" / "make_env.sh", tmp_path], check=True)
    made, empty = compose.read_env(tmp_path / ".env"), compose.read_env(example)
    secrets = [made[name] for name, value in empty.items() if not value]
    assert len(set(secrets)) == 3
    assert all(len(secret) >= 32 for secret in secrets)
    assert made["AIRFLOW__CORE__FERNET_KEY"].endswith("=")


def test_pods_can_do_no_more_than_they_need() -> None:
    """What the label of the namespace demands, and more."""
    for name, pod in PODS.items():
        context = pod["securityContext"]
        assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), name
        # The image's user is a name, which a kubelet cannot check.
        assert context["runAsUser"] == (10001 if name == "metrics" else 50000), name
        assert pod.get("automountServiceAccountToken", True) is (name == "airflow-scheduler"), name
        for container in containers(pod):
            assert container["securityContext"] == HARDENED, name
            assert name == "executor" or set(container["resources"]) == {"requests", "limits"}, name


def test_the_clusters_file_observes_and_its_connections_are_there(tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text(kubernetes.config_map("clusters")[file.name])
    (entry,) = load_clusters(file)
    assert (entry.error, entry.settings.mode) == ("", Mode.OBSERVE)
    assert entry.settings.max_bundles_per_run
    assert f"AIRFLOW_CONN_{entry.settings.spark_connection.upper()}" in kubernetes.config_map("airflow")
    text = (compose.SOURCE / "docs" / "kubernetes.md").read_text()
    assert f"`AIRFLOW_CONN_{entry.settings.connection.upper()}=`" in text


def test_documented_connections_have_known_keys() -> None:
    documents = [
        json.loads(block.body) for block in blocks() if (block.page, block.language) == ("kubernetes.md", "json")
    ]
    assert documents
    assert set().union(*(document["extra"] for document in documents)) <= EXTRAS


def test_values_become_parts_of_valid_pods() -> None:
    """The chart's own schema is not at hand: what it passes on to Kubernetes is checked."""
    given = values()
    for part in (given, given["scheduler"], given["apiServer"], given["dagProcessor"]):
        container = {
            "name": "airflow",
            "env": part.get("env", []),
            "volumeMounts": part.get("volumeMounts", part.get("extraVolumeMounts", [])),
            "resources": part.get("resources", {}),
            "securityContext": given["securityContexts"]["containers"],
        }
        volumes = part.get("volumes") or part.get("extraVolumes", [])
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in volumes}
        spec = {"containers": [container], "volumes": volumes, "securityContext": given["securityContexts"]["pod"]}
        kubernetes.check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "airflow"}, "spec": spec})


def test_values_say_what_the_manifests_say() -> None:
    given, manifests = values(), kubernetes.config_map("airflow")
    options = {
        f"AIRFLOW__{section}__{option}".upper(): str(value)
        for section, options in given["config"].items()
        for option, value in options.items()
    }
    options |= {variable["name"]: variable["value"] for variable in given["env"]}
    assert options.pop("AIRFLOW__CORE__AUTH_MANAGER").endswith(".SimpleAuthManager")
    assert {name: manifests.get(name) for name in options} == options
    assert given["executor"] == manifests["AIRFLOW__CORE__EXECUTOR"]
    dockerfile = (compose.SOURCE / "Dockerfile").read_text()
    assert re.findall(r"^FROM apache/airflow:([\d.]+)-", dockerfile, re.MULTILINE) == [given["airflowVersion"]] * 2
    for name, part in (("airflow-scheduler", "scheduler"), ("airflow-apiserver", "apiServer")):
        assert given[part]["resources"] == main(name)["resources"]
    assert given["scheduler"]["serviceAccount"]["name"] == PODS["airflow-scheduler"]["serviceAccountName"]


def test_prometheus_is_shown_to_the_port_of_the_collector() -> None:
    annotations = OBJECTS["Deployment", "metrics"]["spec"]["template"]["metadata"]["annotations"]
    collector = yaml.safe_load(kubernetes.config_map("metrics")["collector.yaml"])
    ports = {port["name"]: port["containerPort"] for port in main("metrics")["ports"]}
    assert int(annotations["prometheus.io/port"]) == ports["prometheus"]
    assert collector["exporters"]["prometheus"]["endpoint"] == f"0.0.0.0:{ports['prometheus']}"
    assert collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"] == f"0.0.0.0:{ports['otlp']}"
    assert f":{ports['otlp']}/" in kubernetes.config_map("airflow")["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"]
    (pipeline,) = collector["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(collector[kind])
