"""The API of Kubernetes as far as Spark's driver asks it: with the rights of a Role, and pods that are processes."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.deployment import kubernetes
from tests.deployment.kubernetes import NAMESPACE, Document
from tests.patience import PATIENCE

_RIGHTS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Api(ThreadingHTTPServer):
    """A cluster with one pod, the driver's; `refused` is what was asked for and no rule allows."""

    daemon_threads = True

    def __init__(self, rules: list[Document], driver: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._allowed = {(name, verb) for rule in rules for name in rule["resources"] for verb in rule["verbs"]}
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pods = {driver: _seen({"metadata": {"name": driver}})}
        self.asked: set[tuple[str, str]] = set()
        self.refused: set[tuple[str, str]] = set()
        self.created: list[Document] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def allows(self, resource: str, verb: str) -> bool:
        """Return whether a rule allows it, and note that it was asked for."""
        (self.asked if (resource, verb) in self._allowed else self.refused).add((resource, verb))
        return (resource, verb) in self._allowed

    def pods(self, name: str = "") -> list[Document]:
        return [pod for pod in self._pods.values() if name in ("", pod["metadata"]["name"])]

    def create(self, pod: Document) -> Document:
        self.created.append(pod)
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        # There is no init on this machine, and no volume.
        command = [*container["command"][container["command"].index("--") + 1 :], *container["args"]]
        places = {"SPARK_LOCAL_DIRS": str(self._folder)}
        given = {each["name"]: _value(each, name) for each in container["env"]} | places
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYTHON"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with (self._folder / f"{name}.log").open("w") as log:
            environment = inherited | {"PATH": path} | given
            started = subprocess.Popen(command, env=environment, cwd=self._folder, stdout=log, stderr=log)
        self._processes[name] = started
        self._pods[name] = _seen(pod)
        return self._pods[name]

    def delete(self, name: str) -> None:
        for each, process in self._processes.items():
            if name in ("", each):
                process.terminate()
                self._pods.pop(each, None)

    def end(self) -> list[int]:
        """Await the end of all pods, and return their exit codes."""
        return [process.wait(timeout=PATIENCE) for process in self._processes.values()]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        *_, namespace, resource, name = f"{parts.path}/".split("/", 6)
        name = name.rstrip("/")
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        verb = _RIGHTS[self.command]
        if not name and verb in ("get", "delete"):
            verb = {"get": "watch" if "watch" in query else "list", "delete": "deletecollection"}[verb]
        if namespace != NAMESPACE or not self.server.allows(resource, verb):
            self._send({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"}, 403)
        elif verb == "watch":
            self._watch()
        elif verb == "create":
            self._send(self.server.create(body), 201)
        elif verb in ("delete", "deletecollection"):
            self.server.delete(name)
            self._send({"kind": "Status", "status": "Success"})
        else:
            found = self.server.pods(name or query.get("fieldSelector", "").removeprefix("metadata.name="))
            listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": found}
            self._send(listed if verb == "list" else found[0])

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def _send(self, document: Document, code: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self) -> None:
        """Nothing ever happens: executors announce themselves to the driver."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if "Upgrade" in self.headers:
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        self.rfile.read(1)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _seen(pod: Document) -> Document:
    name = pod["metadata"]["name"]
    metadata = pod["metadata"] | {"uid": name, "namespace": NAMESPACE, "resourceVersion": "1"}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Pod", "apiVersion": "v1"} | pod | {"metadata": metadata, "status": status}


def _value(variable: Document, pod: str) -> str:
    field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
    return {"status.podIP": "127.0.0.1", "metadata.name": pod}[field] if field else str(variable.get("value", ""))


@contextmanager
def api(role: str, driver: str, folder: Path) -> Iterator[Api]:
    """Serve the API with the rights of a Role of the manifests."""
    server = Api(kubernetes.objects()["Role", role]["rules"], driver, folder)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield server
    finally:
        server.delete("")
        server.shutdown()
        server.server_close()
