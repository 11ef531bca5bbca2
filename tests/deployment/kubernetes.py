from collections.abc import Iterator
from itertools import chain
from typing import Any

import yaml
from kubernetes_validate import validate
from tests.deployment.compose import SOURCE

FOLDER = SOURCE / "deploy" / "kubernetes"
VALUES = FOLDER / "values.yaml"
NAMESPACE = "pulsar-rebalancer"
VERSION = "1.37"

Document = dict[str, Any]


def objects() -> dict[tuple[str, str], Document]:
    documents = chain.from_iterable(yaml.safe_load_all(file.read_text()) for file in FOLDER.glob("manifests/*.yaml"))
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def config_map(name: str) -> dict[str, str]:
    data: dict[str, str] = objects()["ConfigMap", name]["data"]
    return data


def executor_template() -> Document:
    template: Document = yaml.safe_load(config_map("spark")["executor.yaml"])
    return template


def pods() -> dict[str, Document]:
    made = {name: each["spec"] for (kind, name), each in objects().items() if kind in ("Deployment", "Job")}
    return {name: each["template"]["spec"] for name, each in made.items()} | {"executor": executor_template()["spec"]}


def containers(pod: Document) -> Iterator[Document]:
    yield from pod.get("initContainers", ())
    yield from pod["containers"]


def check(document: Document) -> None:
    """Refuse an object that does not follow its schema, and unknown keys."""
    validate(document, VERSION, strict=True)
