"""The manifests follow the schemas of Kubernetes, and say the same as docker-compose.yaml and the Dockerfile."""

import subprocess
from typing import Any

import pytest
import yaml
from tests.deployment import compose, kubernetes
from tests.deployment.kubernetes import NAMESPACE, VALUES, Document, containers, objects
from tests.project.documentation import commands_in_blocks

OBJECTS = objects()
PODS = kubernetes.pods()
SERVICES: dict[str, Document] = compose.raw()["services"]
PARTS = ("airflow-apiserver", "airflow-scheduler", "airflow-dag-processor")
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
def test_every_object_follows_its_schema(document):
    kubernetes.check(document)
    assert document["metadata"].get("namespace", NAMESPACE) == NAMESPACE


def test_airflow_runs_the_image_and_the_commands_of_the_compose_file():
    ours = SERVICES["airflow-scheduler"]["image"]
    images = {container["image"] for name in (*PARTS, "airflow-migrate") for container in containers(PODS[name])}
    assert images == {ours}
    assert f"spark.kubernetes.container.image {ours}\n" in kubernetes.config_map("spark")["spark.properties"]
    assert f"{values()['defaultAirflowRepository']}:{values()['defaultAirflowTag']}" == ours
    assert {name: main(name)["args"] for name in PARTS} == {name: SERVICES[name]["command"] for name in PARTS}
    assert " ".join(main("airflow-migrate")["args"]) in SERVICES["airflow-init"]["command"][-1].splitlines()
    for name in PARTS:
        assert "check-migrations" in " ".join(PODS[name]["initContainers"][0]["args"])


def test_manifests_name_only_objects_that_exist():
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


def test_no_secret_is_in_a_file():
    assert "Secret" not in {kind for kind, _ in OBJECTS}
    # From a file, not from a command line that a process list and a history show.
    assert {words[7] for words in SECRETS.values()} <= {"--from-file", "--from-env-file"}


def test_its_secrets_are_made_like_those_of_the_compose_file(tmp_path):
    example = kubernetes.FOLDER / ".env.example"
    (tmp_path / ".env.example").write_text(example.read_text())
    subprocess.run([compose.SOURCE / "deploy" / "make_env.sh", tmp_path], check=True)
    made, empty = compose.read_env(tmp_path / ".env"), compose.read_env(example)
    secrets = [made[name] for name, value in empty.items() if not value]
    assert len(set(secrets)) == 3
    assert all(len(secret) >= 32 for secret in secrets)
    assert made["AIRFLOW__CORE__FERNET_KEY"].endswith("=")


def test_pods_can_do_no_more_than_they_need():
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


def test_values_become_parts_of_valid_pods():
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
